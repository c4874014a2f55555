<?php

declare(strict_types=1);

namespace Offramp;

/** A header of a message. Null is a header without a value, which is not the same as an empty one. */
final class Header
{
    public function __construct(public readonly string $name, public readonly ?string $value)
    {
    }
}
