<?php

declare(strict_types=1);

namespace Offramp\Grpc;

/**
 * The call got no answer: the connection could not be made, or broke. The sidecar may have seen the request.
 *
 * @internal
 */
final class ConnectionFailed extends \RuntimeException
{
    /** @param bool $unsent no connection was made, so the sidecar cannot have seen the request */
    public function __construct(string $message, public readonly bool $unsent = false)
    {
        parent::__construct($message);
    }
}
