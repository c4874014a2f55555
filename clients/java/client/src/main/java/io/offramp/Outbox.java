package io.offramp;

import io.offramp.v1.ConsumeRequest;
import io.offramp.v1.ExtendResult;
import io.offramp.v1.Extension;
import io.offramp.v1.SettleStatus;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What is to be said to the sidecar, and what it has not answered yet.
 *
 * <p>{@code settle} and {@code extend} may be called by any thread; everything else on the link's own, and
 * {@code giveUp} by any thread once that one has ended. A settlement stays here until it is answered: whatever was not
 * when a connection broke is said again on the next one, which is harmless. Answers come in the order of settlements.
 */
final class Outbox {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");
    /** Bytes of settlements in a request: beside so many, gRPC's cost per message does not matter. */
    private static final int MOST_SETTLED = 1 << 20;

    private static final int MOST_EXTENDED = 500;

    /** An extension until it is answered. */
    private record Extending(Extension extension, CompletableFuture<Duration> answer) {}

    private final BiConsumer<Batch, SettleResult> onResult;
    private final Queue<Settling> handedIn = new ConcurrentLinkedQueue<>();
    /** To be said before what was handed in: it was said before, or is a piece of what was too large. */
    private final Deque<Settling> first = new ArrayDeque<>();

    private final Deque<Settling> unanswered = new ArrayDeque<>();
    private final Queue<Extending> extensions = new ConcurrentLinkedQueue<>();
    private final Deque<Extending> unextended = new ArrayDeque<>();

    /** {@code onResult} may be null. */
    Outbox(BiConsumer<Batch, SettleResult> onResult) {
        this.onResult = onResult;
    }

    CompletableFuture<SettleResult> settle(Settling settling) {
        handedIn.add(settling);
        return settling.answer;
    }

    CompletableFuture<Duration> extend(Extension extension) {
        Extending extending = new Extending(extension, new CompletableFuture<>());
        extensions.add(extending);
        return extending.answer;
    }

    boolean answeredAll() {
        return first.isEmpty() && unanswered.isEmpty() && handedIn.isEmpty();
    }

    /**
     * What one request to a sidecar that takes {@code mostBytes} can hold, or null if there is nothing to say.
     * {@code onSettled} is told of each batch of which nothing is left to settle.
     */
    ConsumeRequest nextRequest(long mostBytes, Consumer<Batch> onSettled) {
        ConsumeRequest.Builder request = null;
        // The other half is more than enough for tags and extensions.
        int mostSettled = (int) Math.min(MOST_SETTLED, mostBytes / 2);
        int room = mostSettled;
        for (Settling settling; (settling = nextSettling()) != null; ) {
            int size = settling.settlement.getSerializedSize();
            if (size > mostSettled) {
                List<Settling> pieces = settling.split(mostSettled);
                for (int place = pieces.size() - 1; place >= 0; place--) {
                    first.addFirst(pieces.get(place));
                }
                continue;
            }
            if (size > room) {
                first.addFirst(settling);
                break;
            }
            room -= size;
            unanswered.add(settling);
            request = request == null ? ConsumeRequest.newBuilder() : request;
            request.addSettlements(settling.settlement);
            if (settling.batch.settled()) {
                onSettled.accept(settling.batch);
            }
        }
        Extending extending;
        for (int count = 0; count < MOST_EXTENDED && (extending = extensions.poll()) != null; count++) {
            unextended.add(extending);
            request = request == null ? ConsumeRequest.newBuilder() : request;
            request.addExtensions(extending.extension);
        }
        return request == null ? null : request.build();
    }

    private Settling nextSettling() {
        Settling settling = first.poll();
        return settling == null ? handedIn.poll() : settling;
    }

    /** Throws {@code ProtocolBroken} for an answer to something else than what is next. */
    void answered(List<io.offramp.v1.SettleResult> messages) {
        Uncounted uncounted = new Uncounted();
        for (io.offramp.v1.SettleResult message : messages) {
            Settling settling = unanswered.peek();
            if (settling == null || !settling.settlement.getLease().equals(message.getLease())) {
                throw new OfframpException.ProtocolBroken(
                        "the sidecar answered for lease " + Hex.of(message.getLease()) + ", which was not next");
            }
            unanswered.remove();
            SettleResult result = SettleResult.read(message);
            uncounted.look(settling, result);
            conclude(settling, result);
        }
        uncounted.warn();
    }

    /** Throws {@code ProtocolBroken} for an answer to something else than what is next. */
    void extended(List<ExtendResult> messages) {
        for (ExtendResult message : messages) {
            Extending extending = unextended.peek();
            if (extending == null || !extending.extension.getLease().equals(message.getLease())) {
                throw new OfframpException.ProtocolBroken(
                        "the sidecar extended lease " + Hex.of(message.getLease()) + ", which was not next");
            }
            unextended.remove();
            boolean extended = message.getStatus() == SettleStatus.SETTLE_STATUS_UNSPECIFIED;
            if (!extended) {
                log.warn("the lease {} could not be extended: it is lost", Hex.of(message.getLease()));
            }
            extending.answer.complete(extended ? Duration.ofMillis(message.getLeaseForMs()) : Duration.ZERO);
        }
    }

    /** The connection broke. Settlements are said again; leases of the lost session cannot be extended. */
    void disconnected() {
        while (!unanswered.isEmpty()) {
            first.addFirst(unanswered.removeLast());
        }
        giveUpExtensions();
    }

    /** There is no further connection: whoever waits for an answer is told that there will be none. */
    void giveUp(String why) {
        List<Settling> left = new ArrayList<>();
        synchronized (this) {
            disconnected();
            for (Settling settling; (settling = nextSettling()) != null; ) {
                left.add(settling);
            }
        }
        SettleResult result = SettleResult.unanswered(why);
        Uncounted uncounted = new Uncounted();
        for (Settling settling : left) {
            uncounted.look(settling, result);
            conclude(settling, result);
        }
        uncounted.warn();
    }

    private void giveUpExtensions() {
        for (Queue<Extending> queue : List.of(unextended, extensions)) {
            for (Extending extending; (extending = queue.poll()) != null; ) {
                extending.answer.complete(Duration.ZERO);
            }
        }
    }

    private void conclude(Settling settling, SettleResult piece) {
        SettleResult result = settling.conclude(piece);
        if (result == null) {
            return;
        }
        settling.answer.complete(result);
        if (onResult != null) {
            try {
                onResult.accept(settling.batch, result);
            } catch (RuntimeException error) {
                log.error("onResult failed", error);
            }
        }
    }

    /** One line, however many there are: after a restart of the sidecar all workers' leases are gone at once. */
    private static final class Uncounted {
        private int count;
        private Settling first;
        private SettleResult answer;

        void look(Settling settling, SettleResult result) {
            if (!result.settled() && !settling.ours && count++ == 0) {
                first = settling;
                answer = result;
            }
        }

        void warn() {
            if (count > 0) {
                log.warn(
                        "the sidecar did not count {} settlement(s), whose records may be delivered again; the first is "
                                + "{}: {}{}",
                        count,
                        first.batch,
                        answer.status(),
                        answer.detail().isEmpty() ? "" : " (" + answer.detail() + ")");
            }
        }
    }
}
