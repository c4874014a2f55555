package io.offramp;

import java.util.concurrent.CompletionStage;
import java.util.concurrent.Semaphore;
import org.jspecify.annotations.Nullable;

/** One thread that starts asynchronous handlers, as many at a time as there are workers. */
final class AsyncHandlerRunner extends HandlerRunner {
    private final AsyncHandler handler;
    private final int workers;
    private final Semaphore free;
    private final Thread thread;

    AsyncHandlerRunner(Inbox inbox, Runnable onIdle, AsyncHandler handler, int workers, String name) {
        super(inbox, onIdle);
        this.handler = handler;
        this.workers = workers;
        this.free = new Semaphore(workers);
        this.thread = Threads.daemons(name + "-starter").newThread(this::work);
    }

    @Override
    void start() {
        thread.start();
    }

    private void work() {
        try {
            while (true) {
                waitForFree(1);
                Batch batch = waitForBatch();
                if (batch == null) {
                    break;
                }
                start(batch);
            }
            waitForFree(workers - 1);
        } catch (InterruptedException error) {
            // Abandoned: nothing waits for the other handlers.
        } finally {
            idle();
        }
    }

    private void waitForFree(int slots) throws InterruptedException {
        while (true) {
            try {
                free.acquire(slots);
                return;
            } catch (InterruptedException error) {
                throwIfAbandoned(error);
            }
        }
    }

    private @Nullable Batch waitForBatch() throws InterruptedException {
        while (true) {
            try {
                return inbox.take(Long.MAX_VALUE, 1 + free.availablePermits());
            } catch (InterruptedException error) {
                throwIfAbandoned(error);
            }
        }
    }

    /** Other interrupts were meant for a handler and came too late for it. */
    private void throwIfAbandoned(InterruptedException error) throws InterruptedException {
        if (abandoned()) {
            throw error;
        }
    }

    private void start(Batch batch) {
        CompletionStage<?> stage;
        enter();
        try {
            stage = handler.handle(batch);
            if (stage == null) {
                throw new NullPointerException("the handler returned null instead of a stage");
            }
        } catch (Throwable error) {
            end(batch, error);
            return;
        } finally {
            exit();
            clearInterrupt();
        }
        follow(batch, stage);
    }

    /** An interrupt of this handler is not for the next one. */
    private void clearInterrupt() {
        Thread.interrupted();
        // Checked last: `abandon` sets this before it interrupts, and a handler may have caught that interrupt.
        if (abandoned()) {
            Thread.currentThread().interrupt();
        }
    }

    private void follow(Batch batch, CompletionStage<?> stage) {
        stage.whenComplete((result, error) -> {
            // Happens with thenApply instead of thenCompose: the work is done when the inner stage is.
            if (result instanceof CompletionStage<?> inner) {
                follow(batch, inner);
            } else {
                end(batch, error);
            }
        });
    }

    private void end(Batch batch, @Nullable Throwable error) {
        try {
            settleByResult(batch, error);
        } finally {
            free.release();
        }
    }

    @Override
    void abandon() {
        super.abandon();
        thread.interrupt();
    }
}
