package io.offramp;

import java.util.concurrent.CompletionStage;
import java.util.concurrent.Future;
import org.jspecify.annotations.Nullable;

/**
 * A {@link Handler} that returns something. A {@link CompletionStage} or {@link Future} is the work itself: its worker
 * waits for it, and the batch fares as it ends. Anything else is ignored.
 *
 * <p>Lambdas without braces are of this kind: {@code batch -> client.send(batch)}. So a call that returns nothing needs
 * braces, {@code batch -> { store(batch); }}, or is a method reference, {@code this::store}. To wait for many stages
 * without a thread for each, see {@link AsyncHandler}.
 */
@FunctionalInterface
public interface ResultHandler extends Handler {
    @Nullable Object call(Batch batch) throws Exception;

    @Override
    default void handle(Batch batch) throws Exception {
        Object result = call(batch);
        // Stages of stages happen with thenApply instead of thenCompose.
        while (result instanceof CompletionStage<?> || result instanceof Future<?>) {
            result = result instanceof CompletionStage<?> stage
                    ? stage.toCompletableFuture().get()
                    : ((Future<?>) result).get();
        }
    }
}
