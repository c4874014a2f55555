package io.offramp;

/**
 * Processes batches, on as many threads at a time as its {@link Worker} has workers.
 *
 * <p>When it returns, its batch is acked, except for records that it marked otherwise. When it throws, the records that
 * it did not mark are retried, with the exception as the reason, unless it throws {@link SettleAs}.
 *
 * <p>A function that returns a {@code CompletionStage} is an {@link AsyncHandler}. The compiler accepts it here too,
 * but then the stage is ignored: the batch is acked while the work goes on, and also if it fails.
 */
@FunctionalInterface
public interface Handler {
    void handle(Batch batch) throws Exception;
}
