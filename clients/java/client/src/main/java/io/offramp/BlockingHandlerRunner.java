package io.offramp;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/** Runs a blocking handler in as many loops as there are workers, on threads of an executor. */
final class BlockingHandlerRunner extends HandlerRunner {
    private final Handler handler;
    private final int workers;
    private final Executor executor;
    /** Whether this runner created the threads, and so may interrupt them. */
    private final boolean owned;

    private final Set<Thread> threads = ConcurrentHashMap.newKeySet();
    private final AtomicInteger running = new AtomicInteger();

    /** {@code executor}: null to create threads. */
    BlockingHandlerRunner(
            Inbox inbox, Runnable onIdle, Handler handler, int workers, @Nullable Executor executor, String name) {
        super(inbox, onIdle);
        this.handler = handler;
        this.workers = workers;
        this.owned = executor == null;
        ThreadFactory factory = Threads.daemons(name);
        this.executor = executor == null ? task -> factory.newThread(task).start() : executor;
    }

    @Override
    void start() {
        running.set(workers);
        for (int started = 0; started < workers; started++) {
            try {
                executor.execute(this::work);
            } catch (RejectedExecutionException error) {
                running.addAndGet(started - workers);
                throw error;
            }
        }
    }

    private void work() {
        threads.add(Thread.currentThread());
        enter();
        try {
            for (Batch batch; (batch = inbox.take(Long.MAX_VALUE, 1)) != null; ) {
                handle(batch);
                if (owned) {
                    // An interrupt of this handler is not for the next one: `take` would end this worker.
                    Thread.interrupted();
                }
            }
        } catch (InterruptedException error) {
            // Abandoned, or interrupted by the owner of the executor.
            Thread.currentThread().interrupt();
        } finally {
            exit();
            threads.remove(Thread.currentThread());
            if (running.decrementAndGet() == 0) {
                idle();
            }
        }
    }

    private void handle(Batch batch) {
        @Nullable Throwable failure = null;
        try {
            handler.handle(batch);
        } catch (Throwable error) {
            // Also errors: a record that overflows the stack has failed.
            failure = error;
        }
        settleByResult(batch, failure);
    }

    @Override
    void abandon() {
        super.abandon();
        if (owned) {
            threads.forEach(Thread::interrupt);
        }
    }
}
