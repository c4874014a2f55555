<?php

declare(strict_types=1);

namespace Offramp;

/** The sidecar's answer to a settlement. */
final class SettleResult
{
    /** @param list<int> $stale indexes of records of the batch that were not settled, with status Stale */
    public function __construct(
        public readonly SettleStatus $status,
        public readonly array $stale = [],
        /** for people */
        public readonly string $detail = '',
    ) {
    }

    /** The sidecar counts all of it. */
    public function isSettled(): bool
    {
        return $this->status === SettleStatus::Settled;
    }
}
