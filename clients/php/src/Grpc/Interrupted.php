<?php

declare(strict_types=1);

namespace Offramp\Grpc;

/**
 * The caller stopped waiting for the call.
 *
 * @internal
 */
final class Interrupted extends \RuntimeException
{
}
