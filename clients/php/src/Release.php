<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Internal\Verdict;

/** It was not tried. It comes back at once, to whoever is free. */
final class Release extends SettleAs
{
    public function verdict(): Verdict
    {
        return Verdict::release();
    }
}
