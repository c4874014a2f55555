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

/**
 * Records of one topic, leased to this process until they are settled.
 *
 * <p>Settle it once, by one of {@code ack}, {@code nack}, {@code reject}, {@code release} and {@code overloaded}: that
 * says how all records fared that were not marked one by one (see {@link BatchRecord}). A {@link Worker} does so when
 * its handler ends. These calls return at once and may come from any thread; the answer may be waited for but need not
 * be. Stages that depend on an answer run on the thread that talks to the sidecar, unless they are {@code async}: they
 * must not block. All methods are safe to call when the lease is lost: the answer says so.
 */
public final class Batch implements Iterable<BatchRecord> {
    private final io.offramp.v1.Batch message;
    private final Desk desk;
    private final List<BatchRecord> records = new Records();
    /** By index; null where a record has no mark, and as a whole if none has. */
    private Verdict[] marks;
    /** Records that were settled while the rest stayed in hand. */
    private BitSet flushed;
    private boolean concluded;
    private CompletableFuture<SettleResult> answer;
    private volatile boolean lost;

    /** When it came and when it was taken (0: it was not), by {@code System.nanoTime}. */
    final long receivedAt;
    volatile long takenAt;

    Batch(io.offramp.v1.Batch message, Desk desk, long receivedAt) {
        this.message = message;
        this.desk = desk;
        this.receivedAt = receivedAt;
    }

    // The records

    public int size() {
        return message.getRecordsCount();
    }

    public BatchRecord get(int index) {
        return new BatchRecord(this, index, message.getRecords(index));
    }

    /** A view of all of them. */
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

    /** The batch as it came, for what is not here and for those who want the last bit of speed. */
    public io.offramp.v1.Batch message() {
        return message;
    }

    /**
     * The session ended or a lane moved away: the records are somebody else's, or will be soon. A handler that can stop
     * early should.
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
    Redelivery redelivery(int index) {
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

    // Settling

    /** Nothing of it is left to settle. */
    public synchronized boolean settled() {
        return concluded || (flushed != null && flushed.cardinality() == size());
    }

    /** Done. Its positions may be committed. */
    public CompletableFuture<SettleResult> ack() {
        return settle(Verdict.ACK);
    }

    /**
     * Failed: try again after the subscription's backoff. Counts as an attempt for a record alone; a failing batch is
     * first split to find the record that fails.
     */
    public CompletableFuture<SettleResult> nack(String reason) {
        return settle(Verdict.nack(reason, null));
    }

    /** Failed: try again after this time. */
    public CompletableFuture<SettleResult> nack(String reason, Duration retryAfter) {
        return settle(Verdict.nack(reason, retryAfter));
    }

    /** Failed with this exception: try again after the subscription's backoff. */
    public CompletableFuture<SettleResult> nack(Throwable reason) {
        return settle(Verdict.nack(Verdict.describe(reason), null));
    }

    /** Will never succeed: dead-letter it now. */
    public CompletableFuture<SettleResult> reject(String reason) {
        return settle(Verdict.reject(reason));
    }

    /** Will never succeed, as this exception shows: dead-letter it now. */
    public CompletableFuture<SettleResult> reject(Throwable reason) {
        return settle(Verdict.reject(Verdict.describe(reason)));
    }

    /** Not tried: deliver it again at once, to whoever is free. Does not count. */
    public CompletableFuture<SettleResult> release() {
        return settle(Verdict.RELEASE);
    }

    /** What is behind the handler asks for less: deliver it again later, and keep fewer batches in flight. */
    public CompletableFuture<SettleResult> overloaded(String reason) {
        return settle(Verdict.overloaded(reason, null));
    }

    /** What is behind the handler asks for less: deliver it again after this time, and keep fewer in flight. */
    public CompletableFuture<SettleResult> overloaded(String reason, Duration retryAfter) {
        return settle(Verdict.overloaded(reason, retryAfter));
    }

    /**
     * Settle the records marked so far, and keep the others in hand: good for batches that take minutes. Answered at
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
        return handIn(settlement, false);
    }

    /**
     * Ask for the lease to last this long from now, or longer if it does already. The answer is how long it lasts from
     * now; zero if it is lost, which is logged. Only needed with a {@code lease} option: without one a lease lasts as
     * long as the session, up to the subscription's {@code lease.max}.
     */
    public CompletableFuture<Duration> extend(Duration by) {
        if (by.toMillis() <= 0) {
            throw new IllegalArgumentException("a lease cannot be extended by " + by + "; it must be 1 ms or more");
        }
        return desk.extend(this, by);
    }

    /** Settle what is left of it, if anything is. */
    synchronized void settleRest(Verdict said, boolean ours) {
        if (!settled()) {
            conclude(said, ours);
        }
    }

    synchronized void mark(int index, Verdict said) {
        checkOpen();
        if (flushed != null && flushed.get(index)) {
            throw new OfframpException.AlreadySettled("record " + index + " of " + this + " is settled already");
        }
        if (marks == null) {
            marks = new Verdict[size()];
        }
        marks[index] = said;
    }

    private synchronized CompletableFuture<SettleResult> settle(Verdict said) {
        checkOpen();
        if (settled()) {
            // Flushed to the last record: there is nothing left to say.
            concluded = true;
            return answer;
        }
        return conclude(said, false);
    }

    private CompletableFuture<SettleResult> conclude(Verdict said, boolean ours) {
        Settlement settlement = flushed == null
                ? Settlements.whole(lease(), said, marks)
                : Settlements.rest(lease(), size(), flushed, said, marks);
        concluded = true;
        marks = null;
        return handIn(settlement, ours);
    }

    private CompletableFuture<SettleResult> handIn(Settlement settlement, boolean ours) {
        // Called with all else up to date: the desk asks at any time after this whether the batch is settled.
        answer = desk.settle(this, settlement, ours);
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
