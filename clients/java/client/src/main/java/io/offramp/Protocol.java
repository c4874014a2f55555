package io.offramp;

/** Versions and defaults of this client. */
final class Protocol {
    static final String VERSION = "0.1.0";
    /** The protocol's minor version that the stubs are generated from. */
    static final int MINOR = 0;
    /** The lowest minor version of a sidecar that this client works with. */
    static final int NEEDS_MINOR = 0;

    /** Where a sidecar listens by default. */
    static final String DEFAULT_ADDRESS = "unix:/run/offramp/offramp.sock";
    /** What a gRPC client accepts by default. */
    static final int DEFAULT_MESSAGE_BYTES = 4 << 20;
    /** Longer reasons are cut. */
    static final int MOST_REASON_BYTES = 1024;

    private Protocol() {}
}
