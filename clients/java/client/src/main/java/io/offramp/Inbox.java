package io.offramp;

import com.google.protobuf.ByteString;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/** Batches that wait for a worker, in the order in which they were received. For any thread. */
final class Inbox {
    private final Deque<Batch> ready = new ArrayDeque<>();
    // Not `synchronized`, since virtual threads may wait here.
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private int waiting;
    /** A taker did not wait, or its timeout ended, and none has got a batch since. */
    private boolean polled;
    private boolean closed;
    /** Called by a taker that finds nothing. */
    private volatile Runnable onWait = () -> {};

    void onWait(Runnable call) {
        onWait = call;
    }

    void put(Batch batch) {
        lock.lock();
        try {
            ready.add(batch);
            polled = false;
            changed.signal();
        } finally {
            lock.unlock();
        }
    }

    /**
     * The next batch; null if the inbox is closed, or if none was received within this time.
     *
     * @param slots how many batches the taker could process
     */
    @Nullable Batch take(long nanos, int slots) throws InterruptedException {
        lock.lockInterruptibly();
        try {
            while (ready.isEmpty() && !closed) {
                if (nanos <= 0) {
                    // Counts as waiting: otherwise nothing would be asked for on behalf of a taker that only polls.
                    polled = true;
                    onWait.run();
                    return null;
                }
                waiting += slots;
                try {
                    onWait.run();
                    nanos = changed.awaitNanos(nanos);
                } finally {
                    waiting -= slots;
                }
            }
            if (closed) {
                return null;
            }
            Batch batch = ready.remove();
            batch.takenAt = System.nanoTime();
            return batch;
        } finally {
            lock.unlock();
        }
    }

    /** Removes the batches of these leases that no worker has taken; null: all. */
    List<Batch> takeBack(@Nullable Collection<ByteString> leases) {
        lock.lock();
        try {
            List<Batch> back = new ArrayList<>();
            for (Iterator<Batch> batches = ready.iterator(); batches.hasNext(); ) {
                Batch batch = batches.next();
                if (leases == null || leases.contains(batch.lease())) {
                    batches.remove();
                    back.add(batch);
                }
            }
            return back;
        } finally {
            lock.unlock();
        }
    }

    /** The batch that has waited longest, or null. */
    @Nullable Batch oldest() {
        lock.lock();
        try {
            return ready.peek();
        } finally {
            lock.unlock();
        }
    }

    int size() {
        lock.lock();
        try {
            return ready.size();
        } finally {
            lock.unlock();
        }
    }

    /** Batches that workers could take now; at least one if a taker left without. */
    int waiting() {
        lock.lock();
        try {
            return Math.max(waiting, polled ? 1 : 0);
        } finally {
            lock.unlock();
        }
    }

    boolean closed() {
        lock.lock();
        try {
            return closed;
        } finally {
            lock.unlock();
        }
    }

    /** Takers get null from now on. Waiting batches stay until {@link #takeBack}. */
    void close() {
        lock.lock();
        try {
            closed = true;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }
}
