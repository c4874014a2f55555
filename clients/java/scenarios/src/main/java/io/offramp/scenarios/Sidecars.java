package io.offramp.scenarios;

import static io.offramp.scenarios.Play.one;
import static io.offramp.scenarios.Play.settled;
import static io.offramp.scenarios.Play.soon;
import static io.offramp.scenarios.Play.take;
import static io.offramp.scenarios.Talk.equal;
import static io.offramp.scenarios.Talk.expect;
import static io.offramp.scenarios.Talk.say;
import static io.offramp.scenarios.Talk.waitForGo;

import io.offramp.Batch;
import io.offramp.Consumer;
import io.offramp.SettleStatus;
import java.util.concurrent.atomic.AtomicBoolean;

/** "Sidecars that come and go" of clients/SCENARIOS.md. */
final class Sidecars {
    private Sidecars() {}

    static void sidecarComesLater(Play play) throws InterruptedException {
        try (Consumer consumer = play.consume()) {
            say("started");
            settled(take(consumer).ack());
        }
    }

    static void sidecarKilled(Play play) throws InterruptedException {
        try (Consumer consumer = play.consume()) {
            Batch batch = take(consumer);
            say("holding");
            waitForGo();
            equal(soon(batch.ack()).status(), SettleStatus.UNKNOWN);
            Batch again = take(consumer);
            equal(one(again).id(), one(batch).id());
            expect(one(again).possiblyProcessed(), "it is not known to be possibly processed");
            settled(again.ack());
            say("again");
            second(consumer);
        }
    }

    static void sidecarDrained(Play play) throws InterruptedException {
        try (Consumer consumer = play.consume()) {
            Batch batch = take(consumer);
            say("holding");
            waitForGo();
            settled(batch.ack());
            say("settled");
            second(consumer);
        }
    }

    private static void second(Consumer consumer) throws InterruptedException {
        Batch batch = take(consumer);
        equal(one(batch).valueAsText(), "1");
        equal(one(batch).attempt(), 1);
        settled(batch.ack());
    }

    static void drain(Play play) throws InterruptedException {
        AtomicBoolean first = new AtomicBoolean(true);
        play.untilTold(play.worker(batch -> {
            if (first.compareAndSet(true, false)) {
                say("holding");
                waitForGo();
            } else {
                Thread.sleep(1);
            }
            say("did", one(batch).valueAsText());
        }));
    }
}
