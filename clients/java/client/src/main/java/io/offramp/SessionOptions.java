package io.offramp;

import java.time.Duration;
import java.util.Objects;
import java.util.function.BiConsumer;
import org.jspecify.annotations.Nullable;

/**
 * The options that workers and consumers share.
 *
 * @param <B> the builder itself
 */
abstract class SessionOptions<B extends SessionOptions<B>> {
    private final String subscription;
    private long creditBytes;
    private int maxMessageBytes = Protocol.DEFAULT_MESSAGE_BYTES;
    private int maxBatchRecords;
    private @Nullable Duration lease;
    private Duration patience = Duration.ofSeconds(1);
    private Duration resume = Duration.ZERO;
    private @Nullable String name;
    private int needsMinor = Protocol.NEEDS_MINOR;
    private @Nullable BiConsumer<Batch, SettleResult> onResult;

    SessionOptions(String subscription) {
        if (subscription == null || subscription.isEmpty()) {
            throw new IllegalArgumentException("subscription: a name is needed, as in the sidecar's configuration");
        }
        this.subscription = subscription;
    }

    abstract B self();

    /** This worker's name in the status and in dead letters. Default: host and pid. */
    public B name(String name) {
        this.name = Objects.requireNonNull(name, "name");
        return self();
    }

    /**
     * Ask for leases with this deadline, to be extended by {@link Batch#extend}. Default: a lease lasts as long as the
     * session, up to the subscription's {@code lease.max}.
     */
    public B lease(Duration lease) {
        if (lease.toMillis() < 1) {
            throw new IllegalArgumentException("lease: " + lease + " is too short; leave it out to have no deadline");
        }
        this.lease = lease;
        return self();
    }

    /** The largest gRPC message that this process accepts, and so the largest record. Default: 4 MiB. */
    public B maxMessageBytes(int bytes) {
        this.maxMessageBytes = atLeast("maxMessageBytes", bytes, 4_096);
        return self();
    }

    /**
     * Asks for batches of at most this many records: 1 for one at a time. Default: 0, as the subscription says, which is
     * never exceeded.
     */
    public B maxBatchRecords(int records) {
        this.maxBatchRecords = atLeast("maxBatchRecords", records, 0);
        return self();
    }

    /** Bytes of batches that may be unsettled at a time. Default: 0, only the sidecar's own limit. */
    public B creditBytes(long bytes) {
        if (bytes < 0) {
            throw new IllegalArgumentException("creditBytes: " + bytes + " is less than 0");
        }
        this.creditBytes = bytes;
        return self();
    }

    /** How long a prefetched batch may wait for a worker before it is released. Default: 1 second. */
    public B patience(Duration patience) {
        if (patience.isNegative() || patience.isZero()) {
            throw new IllegalArgumentException("patience: " + patience + " is not more than 0");
        }
        this.patience = patience;
        return self();
    }

    /**
     * How long the sidecar waits for this process when a TCP connection is lost: what is in hand stays in hand if it is
     * there again in time. Others get it only after that time, even if this process died. Never longer than the
     * sidecar's {@code listen.resume_max}; without effect on a unix socket. Default: not at all.
     */
    public B resume(Duration resume) {
        if (resume.isNegative() || resume.compareTo(Duration.ofDays(1)) > 0) {
            throw new IllegalArgumentException("resume: " + resume + " is not from 0 to 1 day");
        }
        this.resume = resume;
        return self();
    }

    /**
     * Called with the result of every settlement, on the thread that talks to the sidecar: it must not block.
     * Settlements that did not count are logged in any case.
     */
    public B onResult(BiConsumer<Batch, SettleResult> onResult) {
        this.onResult = Objects.requireNonNull(onResult, "onResult");
        return self();
    }

    /** For tests of a client that is newer than its sidecar. */
    B needsProtocolMinor(int minor) {
        this.needsMinor = minor;
        return self();
    }

    Settings settings(int credit) {
        return new Settings(
                subscription,
                credit,
                creditBytes,
                maxMessageBytes,
                maxBatchRecords,
                lease,
                patience,
                resume,
                name,
                needsMinor,
                onResult);
    }

    static int atLeast(String option, int value, int least) {
        if (value < least) {
            throw new IllegalArgumentException(option + ": " + value + " is less than " + least);
        }
        return value;
    }
}
