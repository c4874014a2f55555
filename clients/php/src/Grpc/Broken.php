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
    /** @param bool $unsent no connection was made, so that the sidecar cannot have seen the request */
    public function __construct(string $message, public readonly bool $unsent = false)
    {
        parent::__construct($message);
    }
}
