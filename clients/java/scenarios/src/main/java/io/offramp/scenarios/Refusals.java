package io.offramp.scenarios;

import static io.offramp.scenarios.Play.SOON;
import static io.offramp.scenarios.Talk.SUBSCRIPTION;
import static io.offramp.scenarios.Talk.say;

import io.offramp.Consumer;
import io.offramp.Newer;
import io.offramp.OfframpException;

/** "What is refused" of clients/SCENARIOS.md. */
final class Refusals {
    private Refusals() {}

    static void unknownSubscription(Play play) throws InterruptedException {
        refused(play.offramp.consumer("no-such-subscription"), OfframpException.NotFound.class);
    }

    static void versionMismatch(Play play) throws InterruptedException {
        refused(Newer.needing(play.offramp.consumer(SUBSCRIPTION), 999), OfframpException.Incompatible.class);
    }

    private static void refused(Consumer.Builder builder, Class<? extends OfframpException> kind)
            throws InterruptedException {
        try (Consumer consumer = builder.open()) {
            consumer.poll(SOON);
        } catch (OfframpException error) {
            Talk.expect(kind.isInstance(error), "it was refused otherwise: " + error);
            say("refused", Talk.inOneLine(error));
            return;
        }
        throw new Talk.Failed("it was not refused");
    }
}
