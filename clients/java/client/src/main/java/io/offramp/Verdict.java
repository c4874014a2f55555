package io.offramp;

import io.offramp.v1.Outcome;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/**
 * An outcome and what goes with it. Equal verdicts of neighbouring records travel as one.
 *
 * @param retryAfterMs null: as the subscription says
 */
record Verdict(Outcome outcome, String reason, Long retryAfterMs) {
    static final Verdict ACK = new Verdict(Outcome.OUTCOME_ACK, "", null);
    static final Verdict RELEASE = new Verdict(Outcome.OUTCOME_RELEASE, "", null);

    private static final Duration LONGEST = Duration.ofDays(36_600);

    static Verdict nack(String reason, Duration after) {
        return new Verdict(Outcome.OUTCOME_NACK, reasonText(reason), milliseconds(after));
    }

    static Verdict reject(String reason) {
        return new Verdict(Outcome.OUTCOME_REJECT, reasonText(reason), null);
    }

    static Verdict overloaded(String reason, Duration after) {
        return new Verdict(Outcome.OUTCOME_OVERLOADED, reasonText(reason), milliseconds(after));
    }

    /** What a handler's exception says of the batch. */
    static Verdict of(Throwable error) {
        return error instanceof SettleAs said ? said.verdict : nack(describe(error), null);
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

    private static Long milliseconds(Duration after) {
        if (after == null) {
            return null;
        }
        if (after.isNegative() || after.compareTo(LONGEST) > 0) {
            throw new IllegalArgumentException(
                    "retryAfter: " + after + " is not a time to wait; it must be 0 or more, and under a century");
        }
        return after.toMillis();
    }

    /** A reason as it travels: no more than is kept of it, and no half characters. */
    private static String reasonText(String reason) {
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
