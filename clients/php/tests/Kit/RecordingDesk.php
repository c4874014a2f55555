<?php

declare(strict_types=1);

namespace Offramp\Tests\Kit;

use Offramp\Batch;
use Offramp\Internal\Desk;
use Offramp\Internal\Settlement;
use Offramp\SettleResult;
use Offramp\SettleStatus;
use Offramp\V1\Settlement as Message;

/** Keeps what is handed in, as generated code reads it. */
final class RecordingDesk implements Desk
{
    /** @var list<Message> */
    public array $said = [];
    public bool $lives = true;

    public function settle(Batch $batch, Settlement $settlement): SettleResult
    {
        $message = new Message();
        $message->mergeFromString($settlement->encode());
        $this->said[] = $message;
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
