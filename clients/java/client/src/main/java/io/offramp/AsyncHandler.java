package io.offramp;

import java.util.concurrent.CompletionStage;

/**
 * Starts the work on a batch, and returns a stage that completes when it is done. It is called on one thread and must
 * not block.
 *
 * <p>When the stage completes, the batch is acked, except for records that were marked otherwise. When it fails, or the
 * handler throws, the records that were not marked are retried, with the exception as the reason, unless that is a
 * {@link SettleAs}. A stage that completes with another stage is done when that one is.
 */
@FunctionalInterface
public interface AsyncHandler {
    CompletionStage<?> handle(Batch batch) throws Exception;
}
