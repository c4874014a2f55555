package io.offramp;

import io.offramp.v1.Settlement;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/** What a batch needs of its connection. For any thread. */
interface Settler {
    /** {@code automatic}: no handler asked for it, so a result other than SETTLED is not worth a warning. */
    CompletableFuture<SettleResult> settle(Batch batch, Settlement settlement, boolean automatic);

    CompletableFuture<Duration> extend(Batch batch, Duration by);
}
