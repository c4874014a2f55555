package io.offramp.scenarios;

import static io.offramp.scenarios.Harness.equal;
import static io.offramp.scenarios.Harness.expect;
import static io.offramp.scenarios.Harness.say;
import static io.offramp.scenarios.Harness.waitForGo;
import static io.offramp.scenarios.ScenarioContext.await;
import static io.offramp.scenarios.ScenarioContext.expectSettled;
import static io.offramp.scenarios.ScenarioContext.onlyRecord;
import static io.offramp.scenarios.ScenarioContext.take;

import io.offramp.Batch;
import io.offramp.Consumer;
import io.offramp.OfframpException;
import io.offramp.SettleStatus;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;

/** "Sidecars that come and go" of clients/SCENARIOS.md. */
final class Sidecars {
    private Sidecars() {}

    static void sidecarComesLater(ScenarioContext context) throws InterruptedException {
        try (Consumer consumer = context.openConsumer()) {
            say("started");
            expectSettled(take(consumer).ack());
        }
    }

    static void sidecarKilled(ScenarioContext context) throws InterruptedException {
        try (Consumer consumer = context.openConsumer()) {
            Batch batch = take(consumer);
            say("holding");
            waitForGo();
            equal(await(batch.ack()).status(), SettleStatus.UNKNOWN);
            Batch again = take(consumer);
            equal(onlyRecord(again).id(), onlyRecord(batch).id());
            expect(onlyRecord(again).possiblyProcessed(), "it is not known to be possibly processed");
            expectSettled(again.ack());
            say("again");
            second(consumer);
        }
    }

    static void sidecarDrained(ScenarioContext context) throws InterruptedException {
        try (Consumer consumer = context.openConsumer()) {
            Batch batch = take(consumer);
            say("holding");
            waitForGo();
            expectSettled(batch.ack());
            say("settled");
            second(consumer);
        }
    }

    private static void second(Consumer consumer) throws InterruptedException {
        Batch batch = take(consumer);
        equal(onlyRecord(batch).valueAsText(), "1");
        equal(onlyRecord(batch).attempt(), 1);
        expectSettled(batch.ack());
    }

    static void drain(ScenarioContext context) throws InterruptedException {
        AtomicBoolean first = new AtomicBoolean(true);
        context.runUntilSigterm(context.worker(batch -> {
            if (first.compareAndSet(true, false)) {
                say("holding");
                waitForGo();
            } else {
                Thread.sleep(1);
            }
            say("did", onlyRecord(batch).valueAsText());
        }));
    }

    static void drainWhilePolling(ScenarioContext context) throws InterruptedException {
        AtomicBoolean settled = new AtomicBoolean();
        context.passOnShutdown(settled::get);
        Consumer consumer = context.openConsumer();
        Batch held = null;
        try {
            while (true) {
                Batch batch = consumer.poll(Duration.ofMillis(10));
                if (batch != null) {
                    held = batch;
                    say("holding");
                }
            }
        } catch (OfframpException.Drained error) {
            say("drained");
        }
        expectSettled(held.ack());
        settled.set(true);
        // The shutdown hook prints the result.
        Thread.sleep(ScenarioContext.TIMEOUT.toMillis());
    }
}
