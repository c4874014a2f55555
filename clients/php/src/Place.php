<?php

declare(strict_types=1);

namespace Offramp;

/** Where a message went. The position is -1 where the broker does not tell. */
final class Place
{
    public function __construct(public readonly int $lane, public readonly int $position)
    {
    }
}
