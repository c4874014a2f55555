package io.offramp;

/** The only use of the client's internals by the runner. */
public final class NewerClient {
    private NewerClient() {}

    /** A consumer that needs this minor version of the protocol. */
    public static Consumer.Builder needing(Consumer.Builder consumer, int minor) {
        return consumer.needsProtocolMinor(minor);
    }
}
