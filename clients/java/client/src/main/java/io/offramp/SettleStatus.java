package io.offramp;

/** The status of a settlement. */
public enum SettleStatus {
    /** There was no answer before the client closed or was refused: whether it counts is unknown. */
    UNANSWERED,
    /** The sidecar counts it: an ack will be committed. */
    SETTLED,
    /** At least the records in {@code stale} were not settled: another worker has them, or they were settled before. */
    STALE,
    /** Nothing was settled: the lease is from before a restart of the sidecar, or was settled long ago. */
    UNKNOWN,
    /** Nothing was settled: the sidecar does not accept this settlement. The records stay leased. */
    REFUSED
}
