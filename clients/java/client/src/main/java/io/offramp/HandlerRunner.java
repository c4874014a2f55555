package io.offramp;

import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Takes batches from an inbox, calls a handler with them, and settles them by how it ends. */
abstract class HandlerRunner {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");
    /** The runner whose handler is running on this thread. */
    private static final ThreadLocal<HandlerRunner> current = new ThreadLocal<>();

    final Inbox inbox;
    private final Runnable onIdle;
    /** Batches in hand are left to the sidecar and must not be settled any more. */
    private volatile boolean abandoned;

    /** {@code onIdle} is called when there are no more batches and all handlers have ended. */
    HandlerRunner(Inbox inbox, Runnable onIdle) {
        this.inbox = inbox;
        this.onIdle = onIdle;
    }

    abstract void start();

    /** Handlers did not end in time: leaves their batches to the sidecar, and interrupts them where it can. */
    void abandon() {
        abandoned = true;
    }

    boolean abandoned() {
        return abandoned;
    }

    /** Whether the caller runs on a thread of this runner's handlers. */
    boolean isHandlerThread() {
        return current.get() == this;
    }

    void idle() {
        onIdle.run();
    }

    /** To be called before user code runs on this thread, see {@link #isHandlerThread}. */
    void enter() {
        current.set(this);
    }

    void exit() {
        current.remove();
    }

    /** Settles what the handler has not settled itself: acked if {@code error} is null, else by the exception. */
    void settleByResult(Batch batch, @Nullable Throwable error) {
        if (abandoned) {
            return;
        }
        if (error == null) {
            batch.settleRest(Outcome.ACK, false);
            return;
        }
        Throwable cause = unwrap(error);
        if (!(cause instanceof SettleAs)) {
            log.warn(
                    "the handler failed for {}{}",
                    batch,
                    batch.settled() ? ", which it had settled already" : "",
                    cause);
        }
        batch.settleRest(Outcome.of(cause), false);
    }

    /** Stages wrap the exceptions they fail with. */
    private static Throwable unwrap(Throwable error) {
        Throwable cause = error;
        while ((cause instanceof CompletionException || cause instanceof ExecutionException)
                && cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause;
    }
}
