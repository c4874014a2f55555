package io.offramp;

/**
 * Works on batches, on as many threads at a time as its {@link Worker} has workers.
 *
 * <p>When it returns its batch is done: it is acked, except for records that it marked otherwise. When it throws, what
 * it did not mark is retried, with the exception as the reason, unless it throws {@link SettleAs}.
 *
 * <p>Something that returns a {@code CompletionStage} is an {@link AsyncHandler}. The compiler takes it here too, but then
 * nobody hears of the stage: the batch is acked while the work goes on, and also if it fails.
 */
@FunctionalInterface
public interface Handler {
    void handle(Batch batch) throws Exception;
}
