<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\Batch;
use Offramp\SettleResult;

/**
 * Where settlements are handed in.
 *
 * @internal
 */
interface Desk
{
    public function settle(Batch $batch, Settlement $settlement): SettleResult;

    public function extend(Batch $batch, float $seconds): float;

    /** Whether the session that brought the batch still lives. */
    public function lives(Batch $batch): bool;
}
