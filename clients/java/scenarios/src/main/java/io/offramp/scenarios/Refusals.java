package io.offramp.scenarios;

import static io.offramp.scenarios.Harness.SUBSCRIPTION;
import static io.offramp.scenarios.Harness.say;
import static io.offramp.scenarios.ScenarioContext.TIMEOUT;

import io.offramp.Consumer;
import io.offramp.NewerClient;
import io.offramp.OfframpException;

/** "What is refused" of clients/SCENARIOS.md. */
final class Refusals {
    private Refusals() {}

    static void unknownSubscription(ScenarioContext context) throws InterruptedException {
        refused(context.offramp.consumer("no-such-subscription"), OfframpException.NotFound.class);
    }

    static void versionMismatch(ScenarioContext context) throws InterruptedException {
        refused(NewerClient.needing(context.offramp.consumer(SUBSCRIPTION), 999), OfframpException.Incompatible.class);
    }

    private static void refused(Consumer.Builder builder, Class<? extends OfframpException> kind)
            throws InterruptedException {
        try (Consumer consumer = builder.open()) {
            consumer.poll(TIMEOUT);
        } catch (OfframpException error) {
            Harness.expect(kind.isInstance(error), "it was refused with another error: " + error);
            say("refused", Harness.inOneLine(error));
            return;
        }
        throw new Harness.Failed("it was not refused");
    }
}
