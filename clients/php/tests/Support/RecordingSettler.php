<?php

declare(strict_types=1);

namespace Offramp\Tests\Support;

use Offramp\Batch;
use Offramp\Internal\Settler;
use Offramp\Internal\Settlement;
use Offramp\SettleResult;
use Offramp\SettleStatus;
use Offramp\V1\Settlement as Message;

/** Records settlements, decoded by generated code. */
final class RecordingSettler implements Settler
{
    /** @var list<Message> */
    public array $settlements = [];
    public bool $alive = true;

    public function settle(Batch $batch, Settlement $settlement): SettleResult
    {
        $message = new Message();
        $message->mergeFromString($settlement->encode());
        $this->settlements[] = $message;
        return new SettleResult(SettleStatus::Settled);
    }

    public function extend(Batch $batch, float $seconds): float
    {
        return $seconds;
    }

    public function isAlive(Batch $batch): bool
    {
        return $this->alive;
    }
}
