package io.offramp;

/**
 * Processes batches, on as many threads at a time as its {@link Worker} has workers.
 *
 * <p>When it returns, its batch is acked, except for records that it marked otherwise. When it throws, the records that
 * it did not mark are retried, with the exception as the reason, unless it throws {@link SettleAs}.
 *
 * <p>A function that returns something is a {@link ResultHandler}, whose worker waits for a stage, or an {@link
 * AsyncHandler}. Do not declare a lambda of this type that starts work and returns before it is done: what it returns
 * is lost, and the batch acked.
 */
@FunctionalInterface
public interface Handler {
    void handle(Batch batch) throws Exception;
}
