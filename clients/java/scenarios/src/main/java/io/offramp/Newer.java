package io.offramp;

/** The one place where the runner reaches behind the public interface. */
public final class Newer {
    private Newer() {}

    /** A consumer that needs a protocol of this minor version. */
    public static Consumer.Builder needing(Consumer.Builder consumer, int minor) {
        return consumer.needsProtocolMinor(minor);
    }
}
