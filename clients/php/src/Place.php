<?php

declare(strict_types=1);

namespace Offramp;

/** Where a message was published. The position is -1 if the broker does not report it. */
final class Place
{
    public function __construct(public readonly int $lane, public readonly int $position)
    {
    }
}
