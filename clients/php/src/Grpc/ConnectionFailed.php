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
    /**
     * @param bool $unsent no connection was made, so the sidecar cannot have seen the request
     * @param bool $cutShort the sidecar ended the call before it had the whole request, so it has done nothing
     */
    public function __construct(
        string $message,
        public readonly bool $unsent = false,
        public readonly bool $cutShort = false,
    ) {
        parent::__construct($message);
    }
}
