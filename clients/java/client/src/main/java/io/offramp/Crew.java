package io.offramp;

import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Those who take batches from an inbox and give them to a handler. */
abstract class Crew {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");
    /** The crew whose handler runs on this thread. */
    private static final ThreadLocal<Crew> current = new ThreadLocal<>();

    final Inbox inbox;
    private final Runnable onIdle;
    /** What is in hand is left to the sidecar: nobody may say any more how it went. */
    private volatile boolean givenUp;

    /** {@code onIdle} is called when no batch comes any more and all handlers have ended. */
    Crew(Inbox inbox, Runnable onIdle) {
        this.inbox = inbox;
        this.onIdle = onIdle;
    }

    abstract void start();

    /** Handlers did not end in time: their batches are no longer theirs, and they should stop. */
    void giveUp() {
        givenUp = true;
    }

    boolean givenUp() {
        return givenUp;
    }

    /** Whether the caller is one of this crew's handlers. */
    boolean isWorkingHere() {
        return current.get() == this;
    }

    void idle() {
        onIdle.run();
    }

    /** Calls into the user's code, by which others can tell whose thread this is. */
    void enter() {
        current.set(this);
    }

    void exit() {
        current.remove();
    }

    /** Settle what the handler has not settled itself: acked if {@code error} is null, as it says otherwise. */
    void conclude(Batch batch, Throwable error) {
        if (givenUp) {
            return;
        }
        if (error == null) {
            batch.settleRest(Verdict.ACK, false);
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
        batch.settleRest(Verdict.of(cause), false);
    }

    /** Stages wrap what they fail with. */
    private static Throwable unwrap(Throwable error) {
        Throwable cause = error;
        while ((cause instanceof CompletionException || cause instanceof ExecutionException)
                && cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause;
    }
}
