<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Internal\Outcome;

/** Throw it if the records were not tried: they are delivered again at once, to any worker. */
final class Release extends SettleAs
{
    public function outcome(): Outcome
    {
        return Outcome::release();
    }
}
