package io.offramp;

/** What this client speaks, in one place. */
final class Protocol {
    static final String VERSION = "0.1.0";
    /** The minor version of the protocol that the stubs are generated from. */
    static final int MINOR = 0;
    /** The least minor version of a sidecar that this client can work with. */
    static final int NEEDS_MINOR = 0;

    /** Where a sidecar listens unless it is told otherwise. */
    static final String DEFAULT_ADDRESS = "unix:/run/offramp/offramp.sock";
    /** What a gRPC client takes unless it is told otherwise. */
    static final int DEFAULT_MESSAGE_BYTES = 4 << 20;
    /** What is kept of a reason. */
    static final int MOST_REASON_BYTES = 1024;

    private Protocol() {}
}
