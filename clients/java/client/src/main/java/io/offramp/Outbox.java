package io.offramp;

import com.google.protobuf.ByteString;
import io.offramp.v1.ConsumeRequest;
import io.offramp.v1.ExtendResult;
import io.offramp.v1.ExtendStatus;
import io.offramp.v1.Extension;
import io.offramp.v1.Limits;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What is to be sent to the sidecar, and what was sent and is not answered yet.
 *
 * <p>{@code settle} and {@code extend} may be called by any thread; everything else on the connection's own, and
 * {@code giveUp} by any thread once that one has ended. A settlement stays here until it is answered: what was not
 * answered when a connection broke is sent again on the next one, which does no harm. Answers come in the order of the
 * settlements.
 */
final class Outbox {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");
    /** Of settlements in a request; beyond this, gRPC's cost for each message no longer matters. */
    private static final int MAX_SETTLEMENT_BYTES = 1 << 20;

    private static final int MAX_EXTENSIONS = 500;

    /** An extension until it is answered. */
    private record PendingExtension(Extension extension, CompletableFuture<Duration> answer) {}

    private final @Nullable BiConsumer<Batch, SettleResult> onResult;
    private final Queue<PendingSettlement> settlements = new ConcurrentLinkedQueue<>();
    /** To be sent before {@code settlements}: sent before without an answer, or pieces of one that was too large. */
    private final Deque<PendingSettlement> resend = new ArrayDeque<>();

    private final Deque<PendingSettlement> sentSettlements = new ArrayDeque<>();
    private final Queue<PendingExtension> extensions = new ConcurrentLinkedQueue<>();
    private final Deque<PendingExtension> sentExtensions = new ArrayDeque<>();

    Outbox(@Nullable BiConsumer<Batch, SettleResult> onResult) {
        this.onResult = onResult;
    }

    CompletableFuture<SettleResult> settle(PendingSettlement pending) {
        settlements.add(pending);
        return pending.answer;
    }

    CompletableFuture<Duration> extend(Extension extension) {
        PendingExtension pending = new PendingExtension(extension, new CompletableFuture<>());
        extensions.add(pending);
        return pending.answer;
    }

    boolean answeredAll() {
        return resend.isEmpty() && sentSettlements.isEmpty() && settlements.isEmpty();
    }

    /**
     * One request within the sidecar's limits; null if there is nothing to send. Calls {@code onSettled} with each batch
     * that is settled to its last record.
     */
    @Nullable ConsumeRequest nextRequest(Limits limits, Consumer<Batch> onSettled) {
        ConsumeRequest.Builder request = null;
        // The other half is more than enough for tags and extensions.
        int maxSettlementBytes = (int) Math.min(MAX_SETTLEMENT_BYTES, limits.getMaxRequestBytes() / 2);
        int mostEntries = limits.getMaxRequestEntries();
        int room = maxSettlementBytes;
        for (PendingSettlement pending; (pending = nextSettlement()) != null; ) {
            int size = pending.settlement.getSerializedSize();
            if (size > maxSettlementBytes || pending.settlement.getPartsCount() > mostEntries) {
                List<PendingSettlement> pieces = pending.split(maxSettlementBytes, mostEntries);
                for (int index = pieces.size() - 1; index >= 0; index--) {
                    resend.addFirst(pieces.get(index));
                }
                continue;
            }
            if (size > room || (request != null && request.getSettlementsCount() == mostEntries)) {
                resend.addFirst(pending);
                break;
            }
            room -= size;
            sentSettlements.add(pending);
            request = request == null ? ConsumeRequest.newBuilder() : request;
            request.addSettlements(pending.settlement);
            if (pending.batch.settled()) {
                onSettled.accept(pending.batch);
            }
        }
        PendingExtension pending;
        for (int count = 0; count < MAX_EXTENSIONS && (pending = extensions.poll()) != null; count++) {
            sentExtensions.add(pending);
            request = request == null ? ConsumeRequest.newBuilder() : request;
            request.addExtensions(pending.extension);
        }
        return request == null ? null : request.build();
    }

    private @Nullable PendingSettlement nextSettlement() {
        PendingSettlement pending = resend.poll();
        return pending == null ? settlements.poll() : pending;
    }

    /** Throws {@code ProtocolBroken} for a result that is not that of the oldest unanswered request. */
    void onResults(List<io.offramp.v1.SettleResult> messages) {
        UncountedWarning uncounted = new UncountedWarning();
        for (io.offramp.v1.SettleResult message : messages) {
            PendingSettlement pending = sentSettlements.peek();
            if (pending == null || !pending.settlement.getLease().equals(message.getLease())) {
                throw new OfframpException.ProtocolBroken(
                        "the sidecar answered for lease " + Hex.of(message.getLease()) + ", which was not next");
            }
            sentSettlements.remove();
            SettleResult result = SettleResult.read(message);
            uncounted.add(pending, result);
            if (result.status() == SettleStatus.REFUSED && !pending.automatic) {
                nackInstead(pending, result);
            }
            conclude(pending, result);
        }
        uncounted.warn();
    }

    /** What the sidecar refuses stays leased, and nobody else will settle it. */
    private void nackInstead(PendingSettlement pending, SettleResult result) {
        Outcome nack = Outcome.nack("REFUSED: " + result.detail(), null);
        settlements.add(new PendingSettlement(pending.batch, Settlements.nacked(pending.settlement, nack), true));
    }

    /** Throws {@code ProtocolBroken} for a result that is not that of the oldest unanswered request. */
    void onExtended(List<ExtendResult> messages) {
        for (ExtendResult message : messages) {
            PendingExtension pending = sentExtensions.peek();
            if (pending == null || !pending.extension.getLease().equals(message.getLease())) {
                throw new OfframpException.ProtocolBroken(
                        "the sidecar extended lease " + Hex.of(message.getLease()) + ", which was not next");
            }
            sentExtensions.remove();
            boolean extended = message.getStatus() == ExtendStatus.EXTEND_STATUS_EXTENDED;
            if (!extended) {
                log.warn("the lease {} could not be extended: it is lost", Hex.of(message.getLease()));
            }
            pending.answer.complete(extended ? Duration.ofMillis(message.getLeaseForMs()) : Duration.ZERO);
        }
    }

    /** The connection broke. What was not answered is sent again. */
    void onDisconnect() {
        while (!sentSettlements.isEmpty()) {
            resend.addFirst(sentSettlements.removeLast());
        }
        extensions.addAll(sentExtensions);
        sentExtensions.clear();
    }

    /** Leases end with their session, and cannot be extended any more. */
    void onSessionEnd() {
        onDisconnect();
        for (PendingExtension pending; (pending = extensions.poll()) != null; ) {
            pending.answer.complete(Duration.ZERO);
        }
    }

    /** Those with a settlement that was sent and is not answered, after {@link #onDisconnect}. */
    Set<ByteString> unanswered() {
        Set<ByteString> leases = new HashSet<>();
        for (PendingSettlement pending : resend) {
            leases.add(pending.batch.lease());
        }
        return leases;
    }

    /** There is no further connection: completes every settlement as unanswered. */
    void giveUp(String why) {
        List<PendingSettlement> left = new ArrayList<>();
        synchronized (this) {
            onSessionEnd();
            for (PendingSettlement pending; (pending = nextSettlement()) != null; ) {
                left.add(pending);
            }
        }
        SettleResult result = SettleResult.unanswered(why);
        UncountedWarning uncounted = new UncountedWarning();
        for (PendingSettlement pending : left) {
            uncounted.add(pending, result);
            conclude(pending, result);
        }
        uncounted.warn();
    }

    private void conclude(PendingSettlement pending, SettleResult piece) {
        SettleResult result = pending.addResult(piece);
        if (result == null) {
            return;
        }
        pending.answer.complete(result);
        if (onResult != null) {
            try {
                onResult.accept(pending.batch, result);
            } catch (RuntimeException error) {
                log.error("onResult failed", error);
            }
        }
    }

    /** Logs one line, however many there are: after a restart of the sidecar all workers' leases are gone at once. */
    private static final class UncountedWarning {
        private int count;
        private @Nullable PendingSettlement first;
        private @Nullable SettleResult answer;

        void add(PendingSettlement pending, SettleResult result) {
            if (!result.settled() && !pending.automatic && count++ == 0) {
                first = pending;
                answer = result;
            }
        }

        void warn() {
            if (first != null && answer != null) {
                log.warn(
                        "the sidecar did not count {} settlement(s); their records may be delivered again; the first "
                                + "is {}: {}{}",
                        count,
                        first.batch,
                        answer.status(),
                        answer.detail().isEmpty() ? "" : " (" + answer.detail() + ")");
            }
        }
    }
}
