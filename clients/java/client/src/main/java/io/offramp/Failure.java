package io.offramp;

import com.google.protobuf.InvalidProtocolBufferException;
import io.grpc.Metadata;
import io.grpc.Status;
import io.offramp.v1.ErrorDetail;
import io.offramp.v1.ErrorInfo;
import io.offramp.v1.ErrorStatus;
import io.offramp.v1.PublishStatus;
import io.offramp.v1.Published;
import org.jspecify.annotations.Nullable;

/**
 * The status of a failed call.
 *
 * @param reason why, as a name of {@code offramp.v1.ErrorReason}; empty: gRPC itself or something between has made the
 *     status
 * @param toldRetryable whether the sidecar says that the same call may succeed later
 */
record Failure(Status status, String reason, boolean toldRetryable) {
    private static final Metadata.Key<byte[]> DETAILS =
            Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);
    private static final String ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo";
    private static final String DOMAIN = "offramp.v1";

    static Failure of(Throwable error) {
        Status status = Status.fromThrowable(error);
        Metadata trailers = Status.trailersFromThrowable(error);
        byte[] details = trailers == null ? null : trailers.get(DETAILS);
        if (details != null) {
            try {
                for (ErrorDetail detail : ErrorStatus.parseFrom(details).getDetailsList()) {
                    if (detail.getTypeUrl().equals(ERROR_INFO)) {
                        ErrorInfo info = ErrorInfo.parseFrom(detail.getValue());
                        if (info.getDomain().equals(DOMAIN)) {
                            boolean retryable = "true".equals(info.getMetadataMap().get("retryable"));
                            return new Failure(status, info.getReason(), retryable);
                        }
                    }
                }
            } catch (InvalidProtocolBufferException wrong) {
                // Something between has made the status.
            }
        }
        return new Failure(status, "", false);
    }

    /** The exception if a retry does not help; else null. */
    OfframpException.@Nullable Refused refusal(Throwable cause, String address) {
        String text = address + ": " + OfframpException.describe(status);
        return reason.isEmpty() ? byStatus(text, cause, address) : toldRetryable ? null : byReason(reason, text, cause);
    }

    /** The exception for a message that was not published, or may not have been. */
    static OfframpException ofMessage(Published result, String text) {
        String name = result.getReason().name().replace("ERROR_REASON_", "");
        String reason = result.getReasonValue() == 0 || name.equals("UNRECOGNIZED") ? "" : name;
        if (result.getStatus() == PublishStatus.PUBLISH_STATUS_REFUSED && !result.getRetryable()) {
            return byReason(reason, text, null);
        }
        OfframpException unavailable = reason.equals("BROKER_FULL")
                ? new OfframpException.OutOfRoom(text, null)
                : new OfframpException.Unavailable(text, null);
        unavailable.reason = reason;
        return unavailable;
    }

    private static OfframpException.Refused byReason(String reason, String text, @Nullable Throwable cause) {
        OfframpException.Refused refused = switch (reason) {
            case "SUBSCRIPTION_NOT_FOUND", "BROKER_NOT_FOUND", "TOPIC_NOT_FOUND", "LANE_NOT_FOUND" ->
                new OfframpException.NotFound(text, cause);
            case "INVALID_REQUEST", "TOO_MANY_ENTRIES", "MESSAGE_TOO_LARGE", "RECORD_TOO_LARGE" ->
                new OfframpException.InvalidRequest(text, cause);
            case "VERSION" -> new OfframpException.Incompatible(text, cause);
            case "UNAUTHENTICATED", "FORBIDDEN" -> new OfframpException.Forbidden(text, cause);
            default -> new OfframpException.Refused(text, cause);
        };
        refused.reason = reason;
        return refused;
    }

    private OfframpException.@Nullable Refused byStatus(String text, Throwable cause, String address) {
        return switch (status.getCode()) {
            case NOT_FOUND -> new OfframpException.NotFound(text, cause);
            case INVALID_ARGUMENT -> new OfframpException.InvalidRequest(text, cause);
            case FAILED_PRECONDITION -> new OfframpException.Incompatible(text, cause);
            case UNIMPLEMENTED -> new OfframpException.Incompatible(
                    address + ": what listens there is not an Offramp sidecar, or one of another version: "
                            + OfframpException.describe(status),
                    cause);
            case UNAUTHENTICATED, PERMISSION_DENIED -> new OfframpException.Forbidden(text, cause);
            default -> null;
        };
    }
}
