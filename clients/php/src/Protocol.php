<?php

declare(strict_types=1);

namespace Offramp;

/** What this package speaks, in one place. */
final class Protocol
{
    /** of this package */
    public const VERSION = '0.1.0';
    /** the minor version that the generated code was made from */
    public const MINOR = 0;
    /** the least minor version of a sidecar that this client can work with */
    public const NEEDS_MINOR = 0;
    /** where a sidecar listens unless it is told otherwise */
    public const DEFAULT_ADDRESS = 'unix:/run/offramp/offramp.sock';
    /** bytes; what a gRPC client takes unless it is told otherwise */
    public const DEFAULT_MESSAGE_BYTES = 4 << 20;
    /** bytes; what is kept of a reason */
    public const MOST_REASON = 1024;
}
