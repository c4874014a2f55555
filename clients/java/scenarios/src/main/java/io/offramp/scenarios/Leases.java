package io.offramp.scenarios;

import static io.offramp.scenarios.Play.isAgain;
import static io.offramp.scenarios.Play.isFirst;
import static io.offramp.scenarios.Play.one;
import static io.offramp.scenarios.Play.settled;
import static io.offramp.scenarios.Play.soon;
import static io.offramp.scenarios.Play.take;
import static io.offramp.scenarios.Talk.PART;
import static io.offramp.scenarios.Talk.SUBSCRIPTION;
import static io.offramp.scenarios.Talk.equal;
import static io.offramp.scenarios.Talk.expect;
import static io.offramp.scenarios.Talk.say;
import static io.offramp.scenarios.Talk.waitForGo;

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

    static void leaseExpiry(Play play) throws InterruptedException {
        Duration lease = Duration.ofSeconds(3);
        try (Consumer slow = play.offramp.consumer(SUBSCRIPTION).lease(lease).open()) {
            Batch held = take(slow);
            equal(held.leaseFor(), lease);
            // Or else it might be the one that gets the record again.
            slow.drain();
            try (Consumer fast = play.consume()) {
                Batch batch = take(fast);
                isAgain(one(batch), true);
                settled(batch.ack());
            }
            SettleResult result = soon(held.ack());
            equal(result.status(), SettleStatus.STALE);
            equal(result.stale(), List.of(new SettleResult.Range(0, 1)));
        }
    }

    static void leaseExtended(Play play) throws InterruptedException {
        try (Consumer consumer =
                play.offramp.consumer(SUBSCRIPTION).lease(Duration.ofSeconds(5)).open()) {
            Batch batch = take(consumer);
            Duration lasts = soon(batch.extend(Duration.ofSeconds(60)));
            expect(lasts.toMillis() > 50_000 && lasts.toMillis() <= 60_000, "the extended lease lasts " + lasts);
            say("holding");
            waitForGo();
            settled(batch.ack());
        }
    }

    static void killedWhileHolding(Play play) throws Exception {
        holdUntilKilled(play, () -> "");
    }

    static void childLivesOn(Play play) throws Exception {
        holdUntilKilled(play, () -> String.valueOf(new ProcessBuilder("sleep", "600").start().pid()));
    }

    private static void holdUntilKilled(Play play, Callable<String> about) throws Exception {
        try (Consumer consumer = play.consume()) {
            Batch batch = take(consumer);
            equal(batch.size(), 3);
            if (PART == 1) {
                say("holding", about.call());
                new CountDownLatch(1).await();
            }
            batch.forEach(record -> isAgain(record, true));
            settled(batch.ack());
        }
    }

    static void blocked(Play play) throws InterruptedException {
        try (Consumer consumer = play.offramp.consumer(SUBSCRIPTION).credit(1).open()) {
            Batch batch = take(consumer);
            say("holding");
            waitForGo();
            settled(batch.ack());
            batch = take(consumer);
            isFirst(one(batch));
            settled(batch.ack());
        }
    }
}
