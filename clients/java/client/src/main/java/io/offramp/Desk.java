package io.offramp;

import io.offramp.v1.Settlement;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/** Where settlements are handed in. Any thread may. */
interface Desk {
    /** {@code ours}: no handler said it, so nobody needs to hear what became of it. */
    CompletableFuture<SettleResult> settle(Batch batch, Settlement settlement, boolean ours);

    CompletableFuture<Duration> extend(Batch batch, Duration by);
}
