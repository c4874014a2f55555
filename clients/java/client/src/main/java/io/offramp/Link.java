package io.offramp;

import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.offramp.v1.ConsumerServiceGrpc;
import io.offramp.v1.Extension;
import io.offramp.v1.Settlement;
import io.offramp.v1.Welcome;
import java.time.Duration;
import java.util.SplittableRandom;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The connection to the sidecar, kept up across its restarts: one session after the other, until it is told to leave or
 * is refused.
 *
 * <p>It has one thread, on which all of its state lives; {@code settle}, {@code extend}, {@code drain} and {@code leave}
 * may be called by any.
 */
final class Link implements Desk, Session.Owner {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");
    /** What the sidecar gets to answer what was settled last. */
    private static final long GOODBYE_MS = 5_000;
    /** What it gets if it has not said a word yet: it may be about to, with batches that are better given back. */
    private static final long NO_ANSWER_MS = 1_000;

    private final Settings settings;
    private final Transport transport;
    private final Inbox inbox;
    private final Outbox outbox;
    private final ScheduledThreadPoolExecutor thread;
    private final Backoff backoff = new Backoff(new SplittableRandom());
    /** Somebody has something to say, and the thread was told. */
    private final AtomicBoolean rung = new AtomicBoolean();

    private final AtomicBoolean wanted = new AtomicBoolean();
    private final CompletableFuture<Void> over = new CompletableFuture<>();
    private volatile boolean finished;
    private volatile OfframpException failure;

    private volatile Session session;
    private ManagedChannel channel;
    private boolean leaving;
    /** By {@code System.nanoTime}; 0 while all is well. */
    private long lostAt;
    /** It was said that there is no token, since all was well. */
    private boolean saidNoToken;

    Link(Settings settings, Transport transport, Inbox inbox) {
        this.settings = settings;
        this.transport = transport;
        this.inbox = inbox;
        this.outbox = new Outbox(settings.onResult());
        this.thread = new ScheduledThreadPoolExecutor(1, Threads.daemons("offramp-" + settings.subscription()));
        thread.setRemoveOnCancelPolicy(true);
        thread.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
        inbox.onWait(this::wanted);
    }

    void start() {
        post(this::connect);
    }

    /** Ends when the link does, and with a {@code Refused} if the sidecar said no. */
    CompletableFuture<Void> over() {
        return over;
    }

    /** Why the link is over; null while it is not, and if it was told to leave. */
    OfframpException failure() {
        return failure;
    }

    boolean connected() {
        Session now = session;
        return now != null && now.welcomed();
    }

    // For batches

    @Override
    public CompletableFuture<SettleResult> settle(Batch batch, Settlement settlement, boolean ours) {
        CompletableFuture<SettleResult> answer = outbox.settle(new Settling(batch, settlement, ours));
        news();
        return answer;
    }

    @Override
    public CompletableFuture<Duration> extend(Batch batch, Duration by) {
        CompletableFuture<Duration> answer = outbox.extend(Extension.newBuilder()
                .setLease(batch.lease())
                .setLeaseForMs(by.toMillis())
                .build());
        news();
        return answer;
    }

    private void news() {
        if (rung.compareAndSet(false, true)) {
            post(this::write);
        }
        // Looked at last: whoever ends the link looks into the outbox after it has set this.
        if (finished) {
            outbox.giveUp("the connection is closed");
        }
    }

    private void write() {
        // First, so that what is handed in from here on rings again.
        rung.set(false);
        if (session != null) {
            session.write();
        }
    }

    // For whoever takes batches

    private void wanted() {
        if (wanted.compareAndSet(false, true)) {
            post(() -> {
                wanted.set(false);
                if (session != null) {
                    session.wanted();
                }
            });
        }
    }

    /** Give out no further batch; takers get null from now on. What is in hand can still be settled. */
    void drain() {
        inbox.close();
        post(this::stopTaking);
    }

    /** Completes when nothing is in hand any more, or the link is over. To be asked for after {@link #drain}. */
    CompletableFuture<Void> settled() {
        CompletableFuture<Void> settled = new CompletableFuture<>();
        over.whenComplete((nothing, error) -> settled.complete(null));
        post(() -> {
            if (session != null) {
                session.whenSettled(() -> settled.complete(null));
            }
        });
        return settled;
    }

    /**
     * Leave in order; what workers still hold is left to the sidecar, which takes it for possibly processed. Waits for
     * the sidecar's last answers, for a few seconds at the most.
     */
    void leave() {
        inbox.close();
        long patience = connected() ? GOODBYE_MS : NO_ANSWER_MS;
        post(() -> {
            stopTaking();
            if (session != null) {
                session.leave();
            }
        });
        if (!endsWithin(patience)) {
            log.warn("the sidecar did not answer within {} seconds; leaving without", patience / 1_000);
            post(() -> {
                if (session != null) {
                    session.cut("leaving");
                }
            });
            endsWithin(NO_ANSWER_MS);
        }
    }

    private boolean endsWithin(long milliseconds) {
        try {
            over.get(milliseconds, TimeUnit.MILLISECONDS);
        } catch (TimeoutException error) {
            return false;
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return false;
        } catch (ExecutionException error) {
            // Whoever waits for the end is told.
        }
        return true;
    }

    private void stopTaking() {
        if (leaving) {
            return;
        }
        leaving = true;
        if (session != null) {
            session.drain();
        } else {
            finish(null);
        }
    }

    // Staying connected

    private void connect() {
        if (leaving) {
            finish(null);
            return;
        }
        channel = transport.open(settings.maxMessageBytes());
        session = new Session(settings, this, inbox, outbox, thread, this);
        session.start(ConsumerServiceGrpc.newStub(channel));
    }

    @Override
    public void welcomed(Welcome welcome) {
        String after = "";
        if (lostAt != 0) {
            after = String.format(" after %.1f seconds", (System.nanoTime() - lostAt) / 1e9);
            lostAt = 0;
        }
        saidNoToken = false;
        log.info(
                "{}: connected to the sidecar at {} (version {}){}",
                settings.subscription(),
                transport.address(),
                welcome.getSidecarVersion(),
                after);
    }

    @Override
    public void ended(Session ended, Throwable error) {
        session = null;
        channel.shutdownNow();
        OfframpException failure = failure(error);
        if (failure != null || leaving) {
            finish(failure);
            return;
        }
        String trouble =
                error == null ? "the sidecar ended the stream" : OfframpException.describe(Status.fromThrowable(error));
        lost(trouble, ended.welcomed(), error != null && Access.NoTokenNow.ended(error));
        if (ended.lastedMs() > Backoff.LONGEST_MS) {
            backoff.reset();
        }
        thread.schedule(() -> guard(this::connect), backoff.nextMs(), TimeUnit.MILLISECONDS);
    }

    private OfframpException failure(Throwable error) {
        if (error == null) {
            return null;
        }
        return error instanceof OfframpException own
                ? own
                : OfframpException.refusal(error, transport.address().toString());
    }

    /**
     * One line for each time that the sidecar is away, however often it is tried. And one if there is no token: that is
     * found out only when it is tried again, and the first line gave another reason.
     */
    private void lost(String trouble, boolean had, boolean noToken) {
        if (lostAt == 0 || (noToken && !saidNoToken)) {
            log.warn(
                    "{}: {} the sidecar at {}: {}; trying until it is there",
                    settings.subscription(),
                    had ? "lost" : "cannot reach",
                    transport.address(),
                    trouble);
        }
        if (lostAt == 0) {
            lostAt = System.nanoTime();
        }
        saidNoToken |= noToken;
    }

    private void finish(OfframpException failure) {
        if (finished) {
            return;
        }
        finished = true;
        this.failure = failure;
        outbox.giveUp("the connection is closed");
        if (failure == null) {
            over.complete(null);
        } else {
            log.error("{}: {}", settings.subscription(), failure.getMessage());
            over.completeExceptionally(failure);
        }
        // Last: whoever finds it closed asks for the failure.
        inbox.close();
        thread.shutdown();
    }

    private void post(Runnable task) {
        try {
            thread.execute(() -> guard(task));
        } catch (RejectedExecutionException error) {
            // The link is over: there is nothing left to do for anybody.
        }
    }

    /** A mistake of this client ends it with a clear error: a link that goes silent would be worse. */
    private void guard(Runnable task) {
        try {
            task.run();
        } catch (RuntimeException error) {
            finish(new OfframpException("the client failed: " + Verdict.describe(error), error));
        }
    }
}
