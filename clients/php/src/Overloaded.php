<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Internal\Outcome;
use Offramp\V1\Outcome as WireOutcome;

/** Throw it to get the batch again later, and to have the sidecar keep fewer batches in flight. */
final class Overloaded extends SettleAs
{
    private readonly Outcome $outcome;

    public function __construct(string|\Throwable $reason = '', ?float $after = null)
    {
        $this->outcome = Outcome::of(WireOutcome::OUTCOME_OVERLOADED, $reason, $after);
        parent::__construct($this->outcome->reason);
    }

    public function outcome(): Outcome
    {
        return $this->outcome;
    }
}
