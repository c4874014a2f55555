package io.offramp;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * A handler throws it, or its stage fails with it, to set the outcome of what the handler has not settled itself:
 *
 * <pre>{@code throw SettleAs.retry("the bank is busy", Duration.ofSeconds(30));}</pre>
 *
 * <p>Any other exception of a handler is a {@code retry} with the exception as its reason. This one is not an error: it
 * is not logged and has no stack trace.
 */
public final class SettleAs extends RuntimeException {
    final transient Outcome outcome;

    private SettleAs(Outcome outcome) {
        super(outcome.kind() + (outcome.reason().isEmpty() ? "" : ": " + outcome.reason()), null, false, false);
        this.outcome = outcome;
    }

    /** Failed: retry after the subscription's backoff. Counts as an attempt. */
    public static SettleAs retry(@Nullable String reason) {
        return new SettleAs(Outcome.nack(reason, null));
    }

    /** Failed: retry after this time. Counts as an attempt. */
    public static SettleAs retry(@Nullable String reason, Duration after) {
        return new SettleAs(Outcome.nack(reason, after));
    }

    /** Never succeeds: dead-letter it now, with this reason. */
    public static SettleAs reject(@Nullable String reason) {
        return new SettleAs(Outcome.reject(reason));
    }

    /** Not tried: deliver it again at once, to any worker. Does not count as an attempt. */
    public static SettleAs release() {
        return new SettleAs(Outcome.RELEASE);
    }

    /** Overloaded: deliver it again later, without counting an attempt, and keep fewer batches in flight. */
    public static SettleAs overloaded(@Nullable String reason) {
        return new SettleAs(Outcome.overloaded(reason, null));
    }

    /** Like {@link #overloaded(String)}, and deliver it again after this time. */
    public static SettleAs overloaded(@Nullable String reason, Duration after) {
        return new SettleAs(Outcome.overloaded(reason, after));
    }
}
