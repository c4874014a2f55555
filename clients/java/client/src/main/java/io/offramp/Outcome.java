package io.offramp;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * The outcome of a record, with its reason and delay. Consecutive records with equal outcomes are sent as one part.
 *
 * @param retryAfterMs null: the subscription's backoff
 */
record Outcome(io.offramp.v1.Outcome kind, String reason, @Nullable Long retryAfterMs) {
    static final Outcome ACK = new Outcome(io.offramp.v1.Outcome.OUTCOME_ACK, "", null);
    static final Outcome RELEASE = new Outcome(io.offramp.v1.Outcome.OUTCOME_RELEASE, "", null);

    private static final Duration LONGEST = Duration.ofDays(36_600);

    static Outcome nack(@Nullable String reason, @Nullable Duration after) {
        return new Outcome(io.offramp.v1.Outcome.OUTCOME_NACK, reasonText(reason), milliseconds(after));
    }

    static Outcome reject(@Nullable String reason) {
        return new Outcome(io.offramp.v1.Outcome.OUTCOME_REJECT, reasonText(reason), null);
    }

    static Outcome overloaded(@Nullable String reason, @Nullable Duration after) {
        return new Outcome(io.offramp.v1.Outcome.OUTCOME_OVERLOADED, reasonText(reason), milliseconds(after));
    }

    /** The outcome of a batch whose handler failed with this. */
    static Outcome of(Throwable error) {
        return error instanceof SettleAs settleAs ? settleAs.outcome : nack(describe(error), null);
    }

    /** An exception in one line. */
    static String describe(Throwable error) {
        String name = error.getClass().getSimpleName();
        if (name.isEmpty()) {
            name = error.getClass().getName();
        }
        String text;
        try {
            text = error.getMessage();
        } catch (RuntimeException broken) {
            text = "it has no text: its getMessage failed";
        }
        return text == null || text.isEmpty() ? name : name + ": " + text;
    }

    private static @Nullable Long milliseconds(@Nullable Duration after) {
        if (after == null) {
            return null;
        }
        if (after.isNegative() || after.compareTo(LONGEST) > 0) {
            throw new IllegalArgumentException(
                    "retryAfter: " + after + " is not a time to wait; it must be 0 or more, and under a century");
        }
        return after.toMillis();
    }

    /** A reason as it is sent: cut to what the sidecar keeps, without splitting a character. */
    private static String reasonText(@Nullable String reason) {
        if (reason == null) {
            return "";
        }
        if (reason.length() <= Protocol.MOST_REASON_BYTES / 3) {
            return reason;
        }
        byte[] bytes = reason.getBytes(StandardCharsets.UTF_8);
        if (bytes.length <= Protocol.MOST_REASON_BYTES) {
            return reason;
        }
        int end = Protocol.MOST_REASON_BYTES;
        while ((bytes[end] & 0xC0) == 0x80) {
            end--;
        }
        return new String(bytes, 0, end, StandardCharsets.UTF_8);
    }
}
