package io.offramp.scenarios;

import static io.offramp.scenarios.Harness.PART;
import static io.offramp.scenarios.Harness.SUBSCRIPTION;
import static io.offramp.scenarios.Harness.equal;
import static io.offramp.scenarios.Harness.expect;
import static io.offramp.scenarios.Harness.say;
import static io.offramp.scenarios.Harness.waitForGo;
import static io.offramp.scenarios.ScenarioContext.await;
import static io.offramp.scenarios.ScenarioContext.expectSettled;
import static io.offramp.scenarios.ScenarioContext.isFirst;
import static io.offramp.scenarios.ScenarioContext.isRedelivered;
import static io.offramp.scenarios.ScenarioContext.onlyRecord;
import static io.offramp.scenarios.ScenarioContext.take;

import io.offramp.Batch;
import io.offramp.Consumer;
import io.offramp.SettleResult;
import io.offramp.SettleStatus;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;

/** "Leases" of clients/SCENARIOS.md. */
final class Leases {
    private Leases() {}

    static void leaseExpiry(ScenarioContext context) throws InterruptedException {
        Duration lease = Duration.ofSeconds(3);
        try (Consumer slow = context.offramp.consumer(SUBSCRIPTION).lease(lease).open()) {
            Batch held = take(slow);
            equal(held.leaseFor(), lease);
            // Otherwise it might get the record again itself.
            slow.drain();
            try (Consumer fast = context.openConsumer()) {
                Batch batch = take(fast);
                isRedelivered(onlyRecord(batch), true);
                expectSettled(batch.ack());
            }
            SettleResult result = await(held.ack());
            equal(result.status(), SettleStatus.STALE);
            equal(result.stale(), List.of(new SettleResult.Range(0, 1)));
        }
    }

    static void leaseExtended(ScenarioContext context) throws InterruptedException {
        try (Consumer consumer =
                context.offramp.consumer(SUBSCRIPTION).lease(Duration.ofSeconds(5)).open()) {
            Batch batch = take(consumer);
            Duration lasts = await(batch.extend(Duration.ofSeconds(60)));
            expect(lasts.toMillis() > 50_000 && lasts.toMillis() <= 60_000, "the extended lease lasts " + lasts);
            say("holding");
            waitForGo();
            expectSettled(batch.ack());
        }
    }

    static void killedWhileHolding(ScenarioContext context) throws Exception {
        holdUntilKilled(context, () -> "");
    }

    static void childLivesOn(ScenarioContext context) throws Exception {
        holdUntilKilled(context, () -> String.valueOf(new ProcessBuilder("sleep", "600").start().pid()));
    }

    private static void holdUntilKilled(ScenarioContext context, Callable<String> about) throws Exception {
        try (Consumer consumer = context.openConsumer()) {
            Batch batch = take(consumer);
            equal(batch.size(), 3);
            if (PART == 1) {
                say("holding", about.call());
                new CountDownLatch(1).await();
            }
            batch.forEach(record -> isRedelivered(record, true));
            expectSettled(batch.ack());
        }
    }

    static void connectionCut(ScenarioContext context) throws InterruptedException {
        try (Consumer consumer = context.offramp
                .consumer(SUBSCRIPTION)
                .credit(1)
                .resume(Duration.ofSeconds(30))
                .open()) {
            expectSettled(take(consumer).ack());
            Batch batch = take(consumer);
            say("holding");
            waitForGo();
            expectSettled(batch.ack());
            batch = take(consumer);
            isFirst(onlyRecord(batch));
            expectSettled(batch.ack());
        }
    }

    static void blocked(ScenarioContext context) throws InterruptedException {
        try (Consumer consumer = context.offramp.consumer(SUBSCRIPTION).credit(1).open()) {
            Batch batch = take(consumer);
            say("holding");
            waitForGo();
            expectSettled(batch.ack());
            batch = take(consumer);
            isFirst(onlyRecord(batch));
            expectSettled(batch.ack());
        }
    }
}
