<?php

declare(strict_types=1);

namespace Offramp;

/** The sidecar's result of a settlement. */
final class SettleResult
{
    /** @param list<int> $stale with status Stale: indexes of the records of the batch that were not settled */
    public function __construct(
        public readonly SettleStatus $status,
        public readonly array $stale = [],
        /** an explanation to show or log */
        public readonly string $detail = '',
        /** with status Refused, for programs: a name of `offramp.v1.ErrorReason`, such as UNKNOWN_OUTCOME */
        public readonly string $reason = '',
    ) {
    }

    /** Whether the sidecar counts all of it. */
    public function isSettled(): bool
    {
        return $this->status === SettleStatus::Settled;
    }
}
