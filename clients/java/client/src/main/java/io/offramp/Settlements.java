package io.offramp;

import com.google.protobuf.ByteString;
import io.offramp.v1.Part;
import io.offramp.v1.Settlement;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Turns outcomes of a batch's records into the settlements that are sent. Pure. */
final class Settlements {
    private Settlements() {}

    /**
     * Marked records as marked, all others with {@code outcome}. No record of the lease may be settled yet.
     *
     * @param marks by index, with null for records that have none; null if no record has any
     */
    static Settlement whole(ByteString lease, Outcome outcome, @Nullable Outcome @Nullable [] marks) {
        Settlement.Builder settlement =
                Settlement.newBuilder().setLease(lease).setOutcome(outcome.kind()).setReason(outcome.reason());
        if (outcome.retryAfterMs() != null) {
            settlement.setRetryAfterMs(outcome.retryAfterMs());
        }
        if (marks != null) {
            Parts parts = new Parts(settlement);
            for (int index = 0; index < marks.length; index++) {
                if (marks[index] != null && !marks[index].equals(outcome)) {
                    parts.add(index, marks[index]);
                }
            }
            parts.end();
        }
        return settlement.build();
    }

    /** The marked records only; the others stay leased. */
    static Settlement marked(ByteString lease, @Nullable Outcome[] marks) {
        Settlement.Builder settlement = Settlement.newBuilder().setLease(lease).setPartial(true);
        Parts parts = new Parts(settlement);
        for (int index = 0; index < marks.length; index++) {
            if (marks[index] != null) {
                parts.add(index, marks[index]);
            }
        }
        parts.end();
        return settlement.build();
    }

    /** Like {@code whole}, when some records are settled already: those must not be sent again. */
    static Settlement rest(
            ByteString lease, int records, BitSet settled, Outcome outcome, @Nullable Outcome @Nullable [] marks) {
        Settlement.Builder settlement = Settlement.newBuilder().setLease(lease).setPartial(true);
        Parts parts = new Parts(settlement);
        for (int index = settled.nextClearBit(0); index < records; index = settled.nextClearBit(index + 1)) {
            parts.add(index, marks == null || marks[index] == null ? outcome : marks[index]);
        }
        parts.end();
        return settlement.build();
    }

    /** The same records with this outcome instead. */
    static Settlement nacked(Settlement settlement, Outcome nack) {
        Settlement.Builder instead =
                Settlement.newBuilder().setLease(settlement.getLease()).setPartial(settlement.getPartial());
        if (!settlement.getPartial()) {
            return instead.setOutcome(nack.kind()).setReason(nack.reason()).build();
        }
        for (Part part : settlement.getPartsList()) {
            instead.addParts(Part.newBuilder()
                    .setFirst(part.getFirst())
                    .setCount(part.getCount())
                    .setOutcome(nack.kind())
                    .setReason(nack.reason()));
        }
        return instead.build();
    }

    /** The same as several settlements of at most about this many bytes and parts each; a single one if it is small. */
    static List<Settlement> split(Settlement settlement, int records, int mostBytes, int mostParts) {
        if (settlement.getSerializedSize() <= mostBytes && settlement.getPartsCount() <= mostParts) {
            return List.of(settlement);
        }
        List<Settlement> pieces = new ArrayList<>();
        Settlement.Builder piece = null;
        int size = 0;
        for (Part part : settlement.getPartial() ? settlement.getPartsList() : allParts(settlement, records)) {
            // Plus the tag and the length of the part.
            int added = part.getSerializedSize() + 4;
            if (piece == null || size + added > mostBytes || piece.getPartsCount() == mostParts) {
                if (piece != null) {
                    pieces.add(piece.build());
                }
                piece = Settlement.newBuilder().setLease(settlement.getLease()).setPartial(true);
                size = settlement.getLease().size() + 8;
            }
            piece.addParts(part);
            size += added;
        }
        pieces.add(piece.build());
        return pieces;
    }

    /** The parts of a settlement, with its own outcome as parts between them. */
    private static List<Part> allParts(Settlement settlement, int records) {
        List<Part> parts = new ArrayList<>();
        int at = 0;
        for (Part part : settlement.getPartsList()) {
            between(settlement, at, part.getFirst(), parts);
            parts.add(part);
            at = part.getFirst() + part.getCount();
        }
        between(settlement, at, records, parts);
        return parts;
    }

    private static void between(Settlement settlement, int from, int until, List<Part> parts) {
        if (from >= until) {
            return;
        }
        Part.Builder part = Part.newBuilder()
                .setFirst(from)
                .setCount(until - from)
                .setOutcome(settlement.getOutcome())
                .setReason(settlement.getReason());
        if (settlement.hasRetryAfterMs()) {
            part.setRetryAfterMs(settlement.getRetryAfterMs());
        }
        parts.add(part.build());
    }

    /** Adds ascending outcomes of records as parts: consecutive records with the same outcome share one. */
    private static final class Parts {
        private final Settlement.Builder settlement;
        private int first;
        private int count;
        private @Nullable Outcome current;

        Parts(Settlement.Builder settlement) {
            this.settlement = settlement;
        }

        void add(int index, Outcome outcome) {
            if (current != null && index == first + count && outcome.equals(current)) {
                count++;
                return;
            }
            end();
            first = index;
            count = 1;
            current = outcome;
        }

        void end() {
            if (current == null) {
                return;
            }
            Part.Builder part = Part.newBuilder()
                    .setFirst(first)
                    .setCount(count)
                    .setOutcome(current.kind())
                    .setReason(current.reason());
            if (current.retryAfterMs() != null) {
                part.setRetryAfterMs(current.retryAfterMs());
            }
            settlement.addParts(part);
            current = null;
        }
    }
}
