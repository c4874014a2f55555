<?php

declare(strict_types=1);

namespace Offramp\Tests\Kit;

use Offramp\Batch;
use Offramp\Internal\Desk;
use Offramp\SettleResult;
use Offramp\SettleStatus;
use Offramp\V1\Settlement;

/** Keeps what is handed in. */
final class RecordingDesk implements Desk
{
    /** @var list<Settlement> */
    public array $said = [];
    public bool $lives = true;

    public function settle(Batch $batch, Settlement $settlement): SettleResult
    {
        $this->said[] = $settlement;
        return new SettleResult(SettleStatus::Settled);
    }

    public function extend(Batch $batch, float $seconds): float
    {
        return $seconds;
    }

    public function lives(Batch $batch): bool
    {
        return $this->lives;
    }
}
