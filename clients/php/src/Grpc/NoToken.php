<?php

declare(strict_types=1);

namespace Offramp\Grpc;

/**
 * A token file gives no token: it is missing, empty, or has something else in it.
 *
 * @internal
 */
final class NoToken extends \InvalidArgumentException
{
}
