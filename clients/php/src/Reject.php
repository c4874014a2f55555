<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Internal\Outcome;
use Offramp\V1\Outcome as WireOutcome;

/** Throw it to dead-letter the records, with this reason. */
final class Reject extends SettleAs
{
    private readonly Outcome $outcome;

    public function __construct(string|\Throwable $reason)
    {
        $this->outcome = Outcome::of(WireOutcome::OUTCOME_REJECT, $reason);
        parent::__construct($this->outcome->reason);
    }

    public function outcome(): Outcome
    {
        return $this->outcome;
    }
}
