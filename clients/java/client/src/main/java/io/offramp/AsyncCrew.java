package io.offramp;

import java.util.concurrent.CompletionStage;
import java.util.concurrent.Semaphore;

/** One thread that starts handlers, as many at a time as there are workers. */
final class AsyncCrew extends Crew {
    private final AsyncHandler handler;
    private final int workers;
    private final Semaphore free;
    private final Thread thread;

    AsyncCrew(Inbox inbox, Runnable onIdle, AsyncHandler handler, int workers, String name) {
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
            // Given up, and nobody waits for the rest.
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
                throwIfGivenUp(error);
            }
        }
    }

    private Batch waitForBatch() throws InterruptedException {
        while (true) {
            try {
                return inbox.take(Long.MAX_VALUE, 1 + free.availablePermits());
            } catch (InterruptedException error) {
                throwIfGivenUp(error);
            }
        }
    }

    /** Anybody else's interrupt was meant for a handler, and came too late for it. */
    private void throwIfGivenUp(InterruptedException error) throws InterruptedException {
        if (givenUp()) {
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
            forgetInterrupt();
        }
        follow(batch, stage);
    }

    /** What a handler does to its thread is not for the next one. */
    private void forgetInterrupt() {
        Thread.interrupted();
        // Looked at last: whoever gives up interrupts after it has set this. A handler may have caught that interrupt.
        if (givenUp()) {
            Thread.currentThread().interrupt();
        }
    }

    private void follow(Batch batch, CompletionStage<?> stage) {
        stage.whenComplete((result, error) -> {
            // As by thenApply where thenCompose was meant: the work is done when the inner one is.
            if (result instanceof CompletionStage<?> inner) {
                follow(batch, inner);
            } else {
                end(batch, error);
            }
        });
    }

    private void end(Batch batch, Throwable error) {
        try {
            conclude(batch, error);
        } finally {
            free.release();
        }
    }

    @Override
    void giveUp() {
        super.giveUp();
        thread.interrupt();
    }
}
