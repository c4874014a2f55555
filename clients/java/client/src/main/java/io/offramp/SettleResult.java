package io.offramp;

import java.util.ArrayList;
import java.util.List;

/**
 * The sidecar's result of a settlement.
 *
 * @param stale with status STALE: ranges of records of the batch that were not settled
 * @param detail an explanation to show or log
 * @param reason with status REFUSED, for programs: a name of {@code offramp.v1.ErrorReason}; else empty
 */
public record SettleResult(SettleStatus status, List<Range> stale, String detail, String reason) {
    /** The records {@code first} to {@code first + count - 1} of a batch. */
    public record Range(int first, int count) {}

    /** By far the most frequent result. */
    static final SettleResult SETTLED = new SettleResult(SettleStatus.SETTLED, List.of(), "", "");

    static SettleResult unanswered(String why) {
        return new SettleResult(SettleStatus.UNANSWERED, List.of(), why, "");
    }

    /** Whether the sidecar counts all of it. */
    public boolean settled() {
        return status == SettleStatus.SETTLED;
    }

    static SettleResult read(io.offramp.v1.SettleResult message) {
        SettleStatus status = switch (message.getStatus()) {
            case SETTLE_STATUS_SETTLED -> SettleStatus.SETTLED;
            case SETTLE_STATUS_STALE -> SettleStatus.STALE;
            case SETTLE_STATUS_UNKNOWN -> SettleStatus.UNKNOWN;
            case SETTLE_STATUS_REFUSED -> SettleStatus.REFUSED;
            default -> SettleStatus.UNANSWERED;
        };
        if (status == SettleStatus.SETTLED) {
            return SETTLED;
        }
        List<Range> stale =
                message.getStaleList().stream().map(one -> new Range(one.getFirst(), one.getCount())).toList();
        return new SettleResult(status, stale, message.getDetail(), reason(message));
    }

    /** Without its prefix; the number of one that this version does not know. */
    private static String reason(io.offramp.v1.SettleResult message) {
        return switch (message.getReason()) {
            case ERROR_REASON_UNSPECIFIED -> "";
            case UNRECOGNIZED -> String.valueOf(message.getReasonValue());
            default -> message.getReason().name().substring("ERROR_REASON_".length());
        };
    }

    /** One result for a settlement that was sent in pieces: the worst, with all stale ranges. */
    static SettleResult merge(List<SettleResult> results) {
        SettleResult worst = SETTLED;
        List<Range> stale = new ArrayList<>();
        for (SettleResult result : results) {
            stale.addAll(result.stale);
            if (!result.settled() && (worst.settled() || result.status.compareTo(worst.status) > 0)) {
                worst = result;
            }
        }
        return new SettleResult(worst.status, List.copyOf(stale), worst.detail, worst.reason);
    }
}
