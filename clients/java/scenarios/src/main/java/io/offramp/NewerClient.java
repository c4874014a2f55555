package io.offramp;

import java.util.concurrent.CompletableFuture;

/** The only use of the client's internals by the runner. */
public final class NewerClient {
    private NewerClient() {}

    /** A consumer that needs this minor version of the protocol. */
    public static Consumer.Builder needing(Consumer.Builder consumer, int minor) {
        return consumer.needsProtocolMinor(minor);
    }

    /** Settles with an outcome that the sidecar does not know. */
    public static CompletableFuture<SettleResult> settleUnknown(Batch batch) {
        return batch.settle(new Outcome(io.offramp.v1.Outcome.OUTCOME_UNSPECIFIED, "", null));
    }
}
