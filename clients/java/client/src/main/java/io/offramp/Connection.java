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
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The connection to the sidecar, across its restarts: one session after the other, until {@code close} or a refusal.
 *
 * <p>It has one thread, on which all of its state lives; {@code settle}, {@code extend}, {@code drain} and {@code
 * close} may be called by any thread.
 */
final class Connection implements Settler, Session.Listener {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");
    /** For the sidecar to answer the last settlements. */
    private static final long CLOSE_TIMEOUT_MS = 5_000;
    /** The same before its welcome: one may be on its way, with batches that are better released. */
    private static final long UNCONNECTED_CLOSE_TIMEOUT_MS = 1_000;

    private final Settings settings;
    private final Transport transport;
    private final Inbox inbox;
    private final Outbox outbox;
    private final ScheduledThreadPoolExecutor thread;
    private final Backoff backoff = new Backoff(new SplittableRandom());
    /** A write is scheduled on the thread. */
    private final AtomicBoolean writerWoken = new AtomicBoolean();

    private final AtomicBoolean waitReported = new AtomicBoolean();
    private final CompletableFuture<Void> closed = new CompletableFuture<>();
    private volatile boolean finished;
    private volatile @Nullable OfframpException failure;

    private volatile @Nullable Session session;
    private ManagedChannel channel;
    private boolean draining;
    /** There is no time left to resume the session. */
    private boolean closing;
    /** By {@code System.nanoTime}; 0 while connected. */
    private long lostAt;
    /** It was logged, during this outage, that there is no token. */
    private boolean noTokenLogged;

    Connection(Settings settings, Transport transport, Inbox inbox) {
        this.settings = settings;
        this.transport = transport;
        this.inbox = inbox;
        this.outbox = new Outbox(settings.onResult());
        this.thread = new ScheduledThreadPoolExecutor(1, Threads.daemons("offramp-" + settings.subscription()));
        thread.setRemoveOnCancelPolicy(true);
        thread.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
        inbox.onWait(this::onWait);
    }

    void start() {
        post(this::connect);
    }

    /** Completes when the connection has ended; fails with {@code Refused} if the sidecar refused. */
    CompletableFuture<Void> closed() {
        return closed;
    }

    /** Why the connection has ended; null while it has not, and after {@code close}. */
    @Nullable OfframpException failure() {
        return failure;
    }

    boolean connected() {
        Session now = session;
        return now != null && now.connected();
    }

    // For batches

    @Override
    public CompletableFuture<SettleResult> settle(Batch batch, Settlement settlement, boolean automatic) {
        CompletableFuture<SettleResult> answer = outbox.settle(new PendingSettlement(batch, settlement, automatic));
        wakeWriter();
        return answer;
    }

    @Override
    public CompletableFuture<Duration> extend(Batch batch, Duration by) {
        CompletableFuture<Duration> answer = outbox.extend(Extension.newBuilder()
                .setLease(batch.lease())
                .setLeaseForMs(by.toMillis())
                .build());
        wakeWriter();
        return answer;
    }

    private void wakeWriter() {
        if (writerWoken.compareAndSet(false, true)) {
            post(this::write);
        }
        // Last: `finish` sets this before it empties the outbox, so one of the two sees what was just queued.
        if (finished) {
            outbox.giveUp("the connection is closed");
        }
    }

    private void write() {
        // First, so that anything queued from here on schedules another write.
        writerWoken.set(false);
        if (session != null) {
            session.write();
        }
    }

    // For workers and consumers

    private void onWait() {
        if (waitReported.compareAndSet(false, true)) {
            post(() -> {
                waitReported.set(false);
                if (session != null) {
                    session.onWait();
                }
            });
        }
    }

    /** Delivers no further batch; takers get null from now on. Batches in hand can still be settled. */
    void drain() {
        inbox.close();
        post(this::stopTaking);
    }

    /** Completes when no batch is in hand any more, or the connection has ended. To be called after {@link #drain}. */
    CompletableFuture<Void> settled() {
        CompletableFuture<Void> settled = new CompletableFuture<>();
        closed.whenComplete((nothing, error) -> settled.complete(null));
        post(() -> {
            if (session != null) {
                session.whenSettled(() -> settled.complete(null));
            }
        });
        return settled;
    }

    /**
     * Ends the session, and settles with {@code inHand} what workers still hold. Null: that is left to the sidecar,
     * which treats it as possibly processed. Waits for the sidecar's last answers, for a few seconds at most.
     */
    void close(@Nullable Outcome inHand) {
        inbox.close();
        long timeout = connected() ? CLOSE_TIMEOUT_MS : UNCONNECTED_CLOSE_TIMEOUT_MS;
        post(() -> {
            stopTaking();
            if (session != null) {
                session.close(inHand);
            }
        });
        if (!endsWithin(timeout)) {
            log.warn("the sidecar did not answer within {} seconds; closing without its answers", timeout / 1_000);
            post(() -> {
                closing = true;
                if (session != null && session.streaming()) {
                    session.cut("closing");
                } else {
                    endSession();
                    finish(null);
                }
            });
            endsWithin(UNCONNECTED_CLOSE_TIMEOUT_MS);
        }
    }

    private boolean endsWithin(long milliseconds) {
        try {
            closed.get(milliseconds, TimeUnit.MILLISECONDS);
        } catch (TimeoutException error) {
            return false;
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return false;
        } catch (ExecutionException error) {
            // `closed` reports it.
        }
        return true;
    }

    private void stopTaking() {
        if (draining) {
            return;
        }
        draining = true;
        if (session != null) {
            session.drain();
        } else {
            finish(null);
        }
    }

    // Staying connected

    private void connect() {
        if (draining && session == null) {
            finish(null);
            return;
        }
        channel = transport.open(settings.maxMessageBytes());
        if (session == null) {
            session = new Session(settings, this, inbox, outbox, thread, this);
        }
        session.start(ConsumerServiceGrpc.newStub(channel));
    }

    @Override
    public void onWelcome(Welcome welcome) {
        String after = "";
        if (lostAt != 0) {
            after = String.format(" after %.1f seconds", (System.nanoTime() - lostAt) / 1e9);
            lostAt = 0;
        }
        noTokenLogged = false;
        log.info(
                "{}: connected to the sidecar at {} (version {}){}",
                settings.subscription(),
                transport.address(),
                welcome.getSidecarVersion(),
                after);
    }

    @Override
    public void onEnd(Session ended, @Nullable Throwable error) {
        channel.shutdownNow();
        OfframpException failure = failure(error);
        // With a reason, the sidecar itself has ended the session.
        boolean lost = error != null && failure == null && Failure.of(error).reason().isEmpty();
        if (closing || !lost || !ended.mayBeResumed()) {
            endSession();
            if (failure != null || draining) {
                finish(failure);
                return;
            }
        }
        String reason =
                error == null ? "the sidecar ended the stream" : OfframpException.describe(Status.fromThrowable(error));
        logLoss(reason, ended.welcomed(), error != null && Access.TokenFileError.causes(error));
        if (ended.lastedMs() > Backoff.LONGEST_MS) {
            backoff.reset();
        }
        thread.schedule(() -> guard(this::connect), backoff.nextMs(), TimeUnit.MILLISECONDS);
    }

    private void endSession() {
        if (session != null) {
            session.over();
            session = null;
        }
    }

    private @Nullable OfframpException failure(@Nullable Throwable error) {
        if (error == null) {
            return null;
        }
        return error instanceof OfframpException own
                ? own
                : OfframpException.refusal(error, transport.address().toString());
    }

    /**
     * Logs one line for each outage, however many attempts it takes. And one if there is no token: that shows only when
     * it reconnects, and the first line gave another reason.
     */
    private void logLoss(String reason, boolean wasConnected, boolean noToken) {
        if (lostAt == 0 || (noToken && !noTokenLogged)) {
            log.warn(
                    "{}: {} the sidecar at {}: {}; retrying until it is there",
                    settings.subscription(),
                    wasConnected ? "lost" : "cannot reach",
                    transport.address(),
                    reason);
        }
        if (lostAt == 0) {
            lostAt = System.nanoTime();
        }
        noTokenLogged |= noToken;
    }

    private void finish(@Nullable OfframpException failure) {
        if (finished) {
            return;
        }
        finished = true;
        this.failure = failure;
        outbox.giveUp("the connection is closed");
        if (failure == null) {
            closed.complete(null);
        } else {
            log.error("{}: {}", settings.subscription(), failure.getMessage());
            closed.completeExceptionally(failure);
        }
        // Last: a taker that finds it closed reads the failure.
        inbox.close();
        thread.shutdown();
    }

    private void post(Runnable task) {
        try {
            thread.execute(() -> guard(task));
        } catch (RejectedExecutionException error) {
            // The connection has ended: there is nothing left to do.
        }
    }

    /** A bug in this client ends the connection with an error, rather than leaving it silent. */
    private void guard(Runnable task) {
        try {
            task.run();
        } catch (RuntimeException error) {
            finish(new OfframpException("the client failed: " + Outcome.describe(error), error));
        }
    }
}
