package io.offramp;

import java.time.Duration;

/**
 * Thrown by a handler, or what its stage fails with, to settle what the handler has not settled itself:
 *
 * <pre>{@code throw SettleAs.retry("the bank is busy", Duration.ofSeconds(30));}</pre>
 *
 * <p>Any other exception of a handler is a {@code retry} with the exception as its reason. This one is no error, and so
 * it is not logged and has no stack trace.
 */
public final class SettleAs extends RuntimeException {
    final transient Verdict verdict;

    private SettleAs(Verdict verdict) {
        super(verdict.outcome() + (verdict.reason().isEmpty() ? "" : ": " + verdict.reason()), null, false, false);
        this.verdict = verdict;
    }

    /** Failed: try again after the subscription's backoff. Counts as an attempt. */
    public static SettleAs retry(String reason) {
        return new SettleAs(Verdict.nack(reason, null));
    }

    /** Failed: try again after this time. Counts as an attempt. */
    public static SettleAs retry(String reason, Duration after) {
        return new SettleAs(Verdict.nack(reason, after));
    }

    /** Will never succeed: dead-letter it now, with this reason. */
    public static SettleAs reject(String reason) {
        return new SettleAs(Verdict.reject(reason));
    }

    /** It was not tried. It comes back at once, to whoever is free, and no attempt is counted. */
    public static SettleAs release() {
        return new SettleAs(Verdict.RELEASE);
    }

    /** Less, please: it comes back later without counting, and the sidecar keeps fewer batches in flight. */
    public static SettleAs overloaded(String reason) {
        return new SettleAs(Verdict.overloaded(reason, null));
    }

    /** As {@link #overloaded(String)}, and it comes back after this time. */
    public static SettleAs overloaded(String reason, Duration after) {
        return new SettleAs(Verdict.overloaded(reason, after));
    }
}
