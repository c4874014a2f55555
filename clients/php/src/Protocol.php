<?php

declare(strict_types=1);

namespace Offramp;

/** Versions and defaults of this package. */
final class Protocol
{
    /** of this package */
    public const VERSION = '0.1.0';
    /** the protocol's minor version that the generated code was made from */
    public const MINOR = 0;
    /** the lowest minor version of a sidecar that this client works with */
    public const NEEDS_MINOR = 0;
    /** where a sidecar listens by default */
    public const DEFAULT_ADDRESS = 'unix:/run/offramp/offramp.sock';
    /** bytes; what a gRPC client accepts by default */
    public const DEFAULT_MESSAGE_BYTES = 4 << 20;
    /** bytes; longer reasons are cut */
    public const MOST_REASON = 1024;
}
