package io.offramp;

import io.grpc.Status;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The base of all exceptions of this client. Messages name what is wrong, the value, and what is allowed.
 *
 * <pre>
 * OfframpException
 * ├── Refused               the sidecar refuses, a retry does not help: a person must change something
 * │   ├── NotFound          no such subscription, broker or topic; the message lists those that exist
 * │   ├── InvalidRequest    an option or a message that the sidecar can never accept
 * │   ├── Incompatible      no sidecar at that address, or one whose protocol version this client cannot use
 * │   └── Forbidden         the client is not authenticated, or lacks the right
 * ├── Unavailable           not now; a retry may help
 * │   └── OutOfRoom         the broker has no room for what is published
 * ├── PartlyPublished       some messages of a call are published and others are not; has the result of each
 * ├── AlreadySettled        a batch or a record was settled a second time
 * ├── Drained               a batch was asked for after {@code drain} or {@code close}: none will come
 * ├── Closed                used after it was closed
 * └── ProtocolBroken        the sidecar broke a rule of the protocol
 * </pre>
 *
 * <p>Workers and consumers never throw {@code Unavailable}: they wait for the sidecar. What a handler throws to set the
 * outcome of a batch is not an error; see {@link SettleAs}.
 */
public class OfframpException extends RuntimeException {
    /** Set before it is thrown. */
    String reason = "";

    OfframpException(String text, @Nullable Throwable cause) {
        super(text, cause);
    }

    /**
     * Why, for programs: a name of {@code offramp.v1.ErrorReason}, such as {@code SUBSCRIPTION_NOT_FOUND}; empty if the
     * sidecar did not say it.
     */
    public final String reason() {
        return reason;
    }

    public static class Refused extends OfframpException {
        Refused(String text, @Nullable Throwable cause) {
            super(text, cause);
        }
    }

    public static final class NotFound extends Refused {
        NotFound(String text, @Nullable Throwable cause) {
            super(text, cause);
        }
    }

    public static final class InvalidRequest extends Refused {
        InvalidRequest(String text, @Nullable Throwable cause) {
            super(text, cause);
        }
    }

    public static final class Incompatible extends Refused {
        Incompatible(String text, @Nullable Throwable cause) {
            super(text, cause);
        }
    }

    public static final class Forbidden extends Refused {
        Forbidden(String text, @Nullable Throwable cause) {
            super(text, cause);
        }
    }

    public static class Unavailable extends OfframpException {
        Unavailable(String text, @Nullable Throwable cause) {
            super(text, cause);
        }
    }

    public static final class OutOfRoom extends Unavailable {
        OutOfRoom(String text, @Nullable Throwable cause) {
            super(text, cause);
        }
    }

    /** Publishing all of them again duplicates those that are published; publishing the others loses nothing. */
    public static final class PartlyPublished extends OfframpException {
        private final transient List<Result> results;

        PartlyPublished(String text, List<Result> results) {
            super(text, null);
            this.results = List.copyOf(results);
        }

        /** Of each message, in order. */
        public List<Result> results() {
            return results;
        }

        /** No message is refused: all of those that failed may succeed if they are published again. */
        public boolean retryable() {
            return results.stream().noneMatch(result -> result.error() instanceof Refused);
        }

        /**
         * What became of one message: one of the two is null.
         *
         * @param place where it was published
         * @param error {@link Refused} or {@link Unavailable}
         */
        public record Result(@Nullable Place place, @Nullable OfframpException error) {}
    }

    public static final class AlreadySettled extends OfframpException {
        AlreadySettled(String text) {
            super(text, null);
        }
    }

    public static final class Drained extends OfframpException {
        Drained(String text) {
            super(text, null);
        }
    }

    public static final class Closed extends OfframpException {
        Closed(String text) {
            super(text, null);
        }
    }

    public static final class ProtocolBroken extends OfframpException {
        ProtocolBroken(String text) {
            super(text, null);
        }
    }

    /** The exception for a status for which a retry does not help; else null. */
    static @Nullable Refused refusal(Throwable error, String address) {
        return Failure.of(error).refusal(error, address);
    }

    /** A status in one line, with its cause: gRPC's own text is often just "io exception". */
    static String describe(Status status) {
        String text = status.getDescription() == null ? status.getCode().name() : status.getDescription();
        Throwable cause = status.getCause();
        return cause == null || cause.getMessage() == null ? text : text + " (" + cause.getMessage() + ")";
    }
}
