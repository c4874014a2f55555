<?php

declare(strict_types=1);

namespace Offramp\Grpc;

/**
 * Whoever waited for the call does not want to wait any longer.
 *
 * @internal
 */
final class Interrupted extends \RuntimeException
{
}
