<?php

declare(strict_types=1);

namespace Offramp\Grpc;

/**
 * No answer came: the connection could not be made, or broke. Whether the sidecar has seen the request is not known.
 *
 * @internal
 */
final class Broken extends \RuntimeException
{
    /**
     * @param bool $unsent no connection was made, so that the sidecar cannot have seen the request
     * @param bool $cutShort the sidecar ended the call before it had the whole request, and so did nothing of it
     */
    public function __construct(
        string $message,
        public readonly bool $unsent = false,
        public readonly bool $cutShort = false,
    ) {
        parent::__construct($message);
    }
}
