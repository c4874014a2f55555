package io.offramp;

/** What the sidecar says of a settlement. */
public enum SettleStatus {
    /** No answer came: the client left, or was refused, before it could. Whether it counts is not known. */
    UNANSWERED,
    /** The sidecar counts it: an ack will be committed. */
    SETTLED,
    /** At least the records in {@code stale} were not settled: they were given to another, or settled otherwise before. */
    STALE,
    /** Nothing was settled: the lease is from before a restart of the sidecar, or was settled long ago. */
    UNKNOWN
}
