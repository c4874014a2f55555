package io.offramp;

import com.google.protobuf.ByteString;
import io.offramp.v1.Redelivery;
import io.offramp.v1.Settlement;
import java.time.Duration;
import java.util.AbstractList;
import java.util.BitSet;
import java.util.Iterator;
import java.util.List;
import java.util.RandomAccess;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Records of one topic, leased to this process until they are settled.
 *
 * <p>Settle it once, with one of {@code ack}, {@code nack}, {@code reject}, {@code release} and {@code overloaded}:
 * that is the outcome of all records that were not marked one by one (see {@link BatchRecord}). A {@link Worker} does
 * so when its handler ends. These calls return at once and may come from any thread; waiting for the result is
 * optional. Stages that depend on a result run on the thread that talks to the sidecar, unless they are {@code async}:
 * they must not block. All methods are safe to call when the lease is lost: the result says so.
 */
public final class Batch implements Iterable<BatchRecord> {
    private final io.offramp.v1.Batch message;
    private final Settler settler;
    private final List<BatchRecord> records = new Records();
    /** By index; null where a record has no mark. The array is null if no record has one. */
    private @Nullable Outcome @Nullable [] marks;
    /** Records that were settled while the rest stayed leased. */
    private @Nullable BitSet flushed;
    private boolean concluded;
    private @Nullable CompletableFuture<SettleResult> answer;
    private volatile boolean lost;

    /** When it was received, and when a worker took it (0: none has), by {@code System.nanoTime}. */
    final long receivedAt;
    volatile long takenAt;

    Batch(io.offramp.v1.Batch message, Settler settler, long receivedAt) {
        this.message = message;
        this.settler = settler;
        this.receivedAt = receivedAt;
    }

    // The records

    public int size() {
        return message.getRecordsCount();
    }

    public BatchRecord get(int index) {
        return new BatchRecord(this, index, message.getRecords(index));
    }

    /** A view of all records. */
    public List<BatchRecord> records() {
        return records;
    }

    public Stream<BatchRecord> stream() {
        return records.stream();
    }

    @Override
    public Iterator<BatchRecord> iterator() {
        return records.iterator();
    }

    /** The identity of a record of this batch by its place. */
    String idOf(int lane, long position) {
        String place = topic() + "/" + lane + "/" + position;
        return message.getTopicId().isEmpty() ? place : place + "@" + message.getTopicId();
    }

    public String topic() {
        return message.getTopic();
    }

    /** The distinct lanes of the records. */
    public List<Integer> lanes() {
        return message.getLanesList();
    }

    /** How long the lease lasts from its delivery. Zero: as long as the session lives. */
    public Duration leaseFor() {
        return Duration.ofMillis(message.getLeaseForMs());
    }

    /** The batch as it was received, for fields that have no method here, and for access without copies. */
    public io.offramp.v1.Batch message() {
        return message;
    }

    /**
     * Whether the session ended or a lane moved away: the records are or will be given to another worker. A handler
     * that can stop early should.
     */
    public boolean lost() {
        return lost;
    }

    void lose() {
        lost = true;
    }

    ByteString lease() {
        return message.getLease();
    }

    /** Null for a first delivery. */
    @Nullable Redelivery redelivery(int index) {
        int low = 0;
        int high = message.getRedeliveriesCount() - 1;
        while (low <= high) {
            int middle = (low + high) >>> 1;
            Redelivery one = message.getRedeliveries(middle);
            if (index < one.getFirst()) {
                high = middle - 1;
            } else if (index >= one.getFirst() + one.getCount()) {
                low = middle + 1;
            } else {
                return one;
            }
        }
        return null;
    }

    // PendingSettlement

    /** Whether all records are settled. */
    public synchronized boolean settled() {
        return concluded || (flushed != null && flushed.cardinality() == size());
    }

    /** Processed. Its positions may be committed. */
    public CompletableFuture<SettleResult> ack() {
        return settle(Outcome.ACK);
    }

    /**
     * Failed: retry after the subscription's backoff. Counts as an attempt only for a record alone; a failing batch is
     * first split to find the record that fails.
     */
    public CompletableFuture<SettleResult> nack(@Nullable String reason) {
        return settle(Outcome.nack(reason, null));
    }

    /** Failed: retry after this time. */
    public CompletableFuture<SettleResult> nack(@Nullable String reason, Duration retryAfter) {
        return settle(Outcome.nack(reason, retryAfter));
    }

    /** Failed with this exception: retry after the subscription's backoff. */
    public CompletableFuture<SettleResult> nack(Throwable reason) {
        return settle(Outcome.nack(Outcome.describe(reason), null));
    }

    /** Never succeeds: dead-letter it now. */
    public CompletableFuture<SettleResult> reject(@Nullable String reason) {
        return settle(Outcome.reject(reason));
    }

    /** Never succeeds, with this exception: dead-letter it now. */
    public CompletableFuture<SettleResult> reject(Throwable reason) {
        return settle(Outcome.reject(Outcome.describe(reason)));
    }

    /** Not tried: deliver it again at once, to any worker. Does not count as an attempt. */
    public CompletableFuture<SettleResult> release() {
        return settle(Outcome.RELEASE);
    }

    /** What the handler depends on is overloaded: deliver it again later, and keep fewer batches in flight. */
    public CompletableFuture<SettleResult> overloaded(@Nullable String reason) {
        return settle(Outcome.overloaded(reason, null));
    }

    /** What the handler depends on is overloaded: deliver it again after this time, and keep fewer in flight. */
    public CompletableFuture<SettleResult> overloaded(@Nullable String reason, Duration retryAfter) {
        return settle(Outcome.overloaded(reason, retryAfter));
    }

    /**
     * Settles the records marked so far; the others stay leased. Useful for batches that take minutes. Completes at
     * once if no record was marked since the last flush.
     */
    public synchronized CompletableFuture<SettleResult> flush() {
        checkOpen();
        if (marks == null) {
            return CompletableFuture.completedFuture(SettleResult.SETTLED);
        }
        Settlement settlement = Settlements.marked(lease(), marks);
        if (flushed == null) {
            flushed = new BitSet(size());
        }
        for (int index = 0; index < marks.length; index++) {
            if (marks[index] != null) {
                flushed.set(index);
            }
        }
        marks = null;
        return send(settlement, false);
    }

    /**
     * Extends the lease to at least this long from now. The result is how long it lasts from now; zero if it is lost,
     * which is logged. Only needed with a {@code lease} option: without one a lease lasts as long as the session, up to
     * the subscription's {@code lease.max}.
     */
    public CompletableFuture<Duration> extend(Duration by) {
        if (by.toMillis() <= 0) {
            throw new IllegalArgumentException("a lease cannot be extended by " + by + "; it must be 1 ms or more");
        }
        return settler.extend(this, by);
    }

    /** Settles the records that are not settled yet, if any. {@code automatic}: no handler asked for it. */
    synchronized void settleRest(Outcome outcome, boolean automatic) {
        if (!settled()) {
            conclude(outcome, automatic);
        }
    }

    synchronized void mark(int index, Outcome outcome) {
        checkOpen();
        if (flushed != null && flushed.get(index)) {
            throw new OfframpException.AlreadySettled("record " + index + " of " + this + " is settled already");
        }
        if (marks == null) {
            marks = new Outcome[size()];
        }
        marks[index] = outcome;
    }

    synchronized CompletableFuture<SettleResult> settle(Outcome outcome) {
        checkOpen();
        if (settled()) {
            // All records were flushed.
            concluded = true;
            return answer;
        }
        return conclude(outcome, false);
    }

    private CompletableFuture<SettleResult> conclude(Outcome outcome, boolean automatic) {
        Settlement settlement = flushed == null
                ? Settlements.whole(lease(), outcome, marks)
                : Settlements.rest(lease(), size(), flushed, outcome, marks);
        concluded = true;
        marks = null;
        return send(settlement, automatic);
    }

    private CompletableFuture<SettleResult> send(Settlement settlement, boolean automatic) {
        // Last, with all other state up to date: from here on the settler may call `settled` at any time.
        answer = settler.settle(this, settlement, automatic);
        return answer;
    }

    private void checkOpen() {
        if (concluded) {
            throw new OfframpException.AlreadySettled(this + " is settled already");
        }
    }

    @Override
    public String toString() {
        return "batch " + Hex.of(lease()) + " of " + topic() + " (" + size() + " records)";
    }

    private final class Records extends AbstractList<BatchRecord> implements RandomAccess {
        @Override
        public BatchRecord get(int index) {
            return Batch.this.get(index);
        }

        @Override
        public int size() {
            return Batch.this.size();
        }
    }
}
