<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\Batch;
use Offramp\SettleResult;

/**
 * What a batch needs of its connection.
 *
 * @internal
 */
interface Settler
{
    public function settle(Batch $batch, Settlement $settlement): SettleResult;

    public function extend(Batch $batch, float $seconds): float;

    /** Whether the session that delivered the batch is still alive. */
    public function isAlive(Batch $batch): bool;
}
