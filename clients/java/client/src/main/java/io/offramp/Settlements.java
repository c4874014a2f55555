package io.offramp;

import com.google.protobuf.ByteString;
import io.offramp.v1.Part;
import io.offramp.v1.Settlement;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;

/** From what was said of a batch's records to the settlements that travel. Pure. */
final class Settlements {
    private Settlements() {}

    /**
     * The marked records as marked, all others as {@code verdict} says. No record of the lease may be settled yet.
     *
     * @param marks by index, with null for records that have none; null if no record has any
     */
    static Settlement whole(ByteString lease, Verdict verdict, Verdict[] marks) {
        Settlement.Builder settlement =
                Settlement.newBuilder().setLease(lease).setOutcome(verdict.outcome()).setReason(verdict.reason());
        if (verdict.retryAfterMs() != null) {
            settlement.setRetryAfterMs(verdict.retryAfterMs());
        }
        if (marks != null) {
            Runs runs = new Runs(settlement);
            for (int index = 0; index < marks.length; index++) {
                if (marks[index] != null && !marks[index].equals(verdict)) {
                    runs.add(index, marks[index]);
                }
            }
            runs.end();
        }
        return settlement.build();
    }

    /** The marked records only; the others stay leased. */
    static Settlement marked(ByteString lease, Verdict[] marks) {
        Settlement.Builder settlement = Settlement.newBuilder().setLease(lease).setPartial(true);
        Runs runs = new Runs(settlement);
        for (int index = 0; index < marks.length; index++) {
            if (marks[index] != null) {
                runs.add(index, marks[index]);
            }
        }
        runs.end();
        return settlement.build();
    }

    /** Like {@code whole}, when some records are settled already: those must not be named again. */
    static Settlement rest(ByteString lease, int records, BitSet settled, Verdict verdict, Verdict[] marks) {
        Settlement.Builder settlement = Settlement.newBuilder().setLease(lease).setPartial(true);
        Runs runs = new Runs(settlement);
        for (int index = settled.nextClearBit(0); index < records; index = settled.nextClearBit(index + 1)) {
            runs.add(index, marks == null || marks[index] == null ? verdict : marks[index]);
        }
        runs.end();
        return settlement.build();
    }

    /** The same as several settlements of about {@code mostBytes} at the most; a single one if it is small enough. */
    static List<Settlement> split(Settlement settlement, int records, int mostBytes) {
        if (settlement.getSerializedSize() <= mostBytes) {
            return List.of(settlement);
        }
        List<Settlement> pieces = new ArrayList<>();
        Settlement.Builder piece = null;
        int size = 0;
        for (Part part : settlement.getPartial() ? settlement.getPartsList() : spread(settlement, records)) {
            // Tag and length of the part come on top.
            int added = part.getSerializedSize() + 4;
            if (piece == null || size + added > mostBytes) {
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

    /** The parts of a settlement, and its own outcome as parts between them. */
    private static List<Part> spread(Settlement settlement, int records) {
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

    /** Ascending verdicts of records as parts: neighbours with the same verdict share one. */
    private static final class Runs {
        private final Settlement.Builder settlement;
        private int first;
        private int count;
        private Verdict current;

        Runs(Settlement.Builder settlement) {
            this.settlement = settlement;
        }

        void add(int index, Verdict verdict) {
            if (current != null && index == first + count && verdict.equals(current)) {
                count++;
                return;
            }
            end();
            first = index;
            count = 1;
            current = verdict;
        }

        void end() {
            if (current == null) {
                return;
            }
            Part.Builder part = Part.newBuilder()
                    .setFirst(first)
                    .setCount(count)
                    .setOutcome(current.outcome())
                    .setReason(current.reason());
            if (current.retryAfterMs() != null) {
                part.setRetryAfterMs(current.retryAfterMs());
            }
            settlement.addParts(part);
            current = null;
        }
    }
}
