package io.offramp.scenarios;

import static io.offramp.scenarios.Harness.SUBSCRIPTION;
import static io.offramp.scenarios.Harness.say;
import static io.offramp.scenarios.ScenarioContext.TIMEOUT;
import static io.offramp.scenarios.ScenarioContext.expectSettled;
import static io.offramp.scenarios.ScenarioContext.take;

import io.offramp.Batch;
import io.offramp.Consumer;
import io.offramp.NewerClient;
import io.offramp.OfframpException;
import io.offramp.SettleResult;
import io.offramp.SettleStatus;

/** "What is refused" of clients/SCENARIOS.md. */
final class Refusals {
    private Refusals() {}

    static void unknownSubscription(ScenarioContext context) throws InterruptedException {
        refused(context.offramp.consumer("no-such-subscription"), OfframpException.NotFound.class);
    }

    static void versionMismatch(ScenarioContext context) throws InterruptedException {
        refused(NewerClient.needing(context.offramp.consumer(SUBSCRIPTION), 999), OfframpException.Incompatible.class);
    }

    static void refusedSettlement(ScenarioContext context) throws InterruptedException {
        try (Consumer consumer = context.openConsumer()) {
            Batch batch = take(consumer);
            SettleResult refused = ScenarioContext.await(NewerClient.settleUnknown(batch));
            Harness.equal(refused.status(), SettleStatus.REFUSED);
            Harness.equal(refused.reason(), "UNKNOWN_OUTCOME");
            Batch again = take(consumer);
            ScenarioContext.isRedelivered(ScenarioContext.onlyRecord(again), false);
            expectSettled(again.ack());
        }
    }

    private static void refused(Consumer.Builder builder, Class<? extends OfframpException> kind)
            throws InterruptedException {
        try (Consumer consumer = builder.open()) {
            consumer.poll(TIMEOUT);
        } catch (OfframpException error) {
            Harness.expect(kind.isInstance(error), "it was refused with another error: " + error);
            say("refused", error.reason(), Harness.inOneLine(error));
            return;
        }
        throw new Harness.Failed("it was not refused");
    }
}
