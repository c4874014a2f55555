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
                free.acquire();
                Batch batch = inbox.take(Long.MAX_VALUE, 1 + free.availablePermits());
                if (batch == null) {
                    break;
                }
                start(batch);
            }
            free.acquire(workers - 1);
        } catch (InterruptedException error) {
            // Given up, and nobody waits for the rest.
        } finally {
            idle();
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
        }
        follow(batch, stage);
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
