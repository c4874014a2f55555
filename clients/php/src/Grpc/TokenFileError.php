<?php

declare(strict_types=1);

namespace Offramp\Grpc;

/**
 * A token file has no token: it is missing, empty, or has something else in it.
 *
 * @internal
 */
final class TokenFileError extends \InvalidArgumentException
{
}
