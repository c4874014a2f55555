package io.offramp;

import java.time.Duration;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Batches one after the other, for any number of threads, for those who want to run their own loop:
 *
 * <pre>{@code
 * for (Batch batch : consumer) {
 *     work(batch);
 *     batch.ack();
 * }
 * }</pre>
 *
 * <p>Made by {@link Offramp#consumer}. Each batch must be settled by whoever took it. It waits for the sidecar for as
 * long as it takes, also when that restarts.
 */
public final class Consumer implements Iterable<Batch>, AutoCloseable {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");

    private final Inbox inbox = new Inbox();
    private final Link link;
    private final String subscription;
    private final Duration drainTimeout;
    private final Runnable onEnd;

    private Consumer(Builder builder) {
        Settings settings = builder.settings(builder.credit);
        this.link = new Link(settings, builder.offramp.transport(), inbox);
        this.subscription = settings.subscription();
        this.drainTimeout = builder.drainTimeout;
        this.onEnd = builder.offramp.opened(this);
        link.start();
    }

    /** There is a session with the sidecar now. */
    public boolean connected() {
        return link.connected();
    }

    /**
     * The next batch; null when none will come, since the consumer drains or is closed.
     *
     * @throws OfframpException.Refused when the sidecar said no
     */
    public Batch take() throws InterruptedException {
        return poll(Duration.ofNanos(Long.MAX_VALUE));
    }

    /**
     * The next batch; null if none came within this time, or none will. With zero it finds what has come since the last
     * call, but not what has waited for {@code patience}.
     *
     * @throws OfframpException.Refused when the sidecar said no
     */
    public Batch poll(Duration atMost) throws InterruptedException {
        Batch batch = inbox.take(atMost.toNanos(), 1);
        if (batch == null && link.failure() != null) {
            throw link.failure();
        }
        return batch;
    }

    /** Ends when the consumer drains, is closed, or the thread is interrupted. */
    @Override
    public Iterator<Batch> iterator() {
        return new Batches();
    }

    /** End the iteration, on whichever thread. What is in hand can still be settled. Returns at once. */
    public void drain() {
        link.drain();
    }

    /**
     * Leaves. Settle what is in hand before: what is not is delivered again as possibly processed. Waits for the
     * sidecar's last answers, for a few seconds at the most.
     */
    @Override
    public void close() {
        link.leave();
        onEnd.run();
    }

    /** After {@link #drain}: until whoever took batches has settled them, for the {@code drainTimeout} at the most. */
    void awaitSettled() {
        try {
            link.settled().get(drainTimeout.toNanos(), TimeUnit.NANOSECONDS);
        } catch (TimeoutException error) {
            log.warn("{}: batches in hand were not settled within {}; leaving without", subscription, drainTimeout);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException error) {
            throw new AssertionError(error);
        }
    }

    private final class Batches implements Iterator<Batch> {
        private Batch next;

        @Override
        public boolean hasNext() {
            if (next == null) {
                try {
                    next = take();
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            }
            return next != null;
        }

        @Override
        public Batch next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            Batch batch = next;
            next = null;
            return batch;
        }
    }

    /** What a consumer can be told before it opens. */
    public static final class Builder extends SessionOptions<Builder> {
        private final Offramp offramp;
        private int credit = 2;
        private Duration drainTimeout = Duration.ofSeconds(20);

        Builder(Offramp offramp, String subscription) {
            super(subscription);
            this.offramp = offramp;
        }

        @Override
        Builder self() {
            return this;
        }

        /**
         * Batches that may be unsettled at a time, waiting ones included. Default: 2, so that the next one is there when
         * the one in hand is done. Give two for each thread that takes batches.
         */
        public Builder credit(int batches) {
            this.credit = atLeast("credit", batches, 1);
            return this;
        }

        /**
         * How long {@link Offramp#closeOnShutdown()} waits for batches in hand to be settled. Default: 20 seconds, since one
         * that was dropped is never settled.
         */
        public Builder drainTimeout(Duration timeout) {
            this.drainTimeout = Objects.requireNonNull(timeout, "drainTimeout");
            return this;
        }

        /** Start asking for batches. Does not wait for the sidecar. */
        public Consumer open() {
            return new Consumer(this);
        }
    }
}
