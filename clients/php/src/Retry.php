<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Internal\Outcome;
use Offramp\V1\Outcome as WireOutcome;

/** Throw it to get the records again, after `after` seconds if given. Counts as an attempt. */
final class Retry extends SettleAs
{
    private readonly Outcome $outcome;

    public function __construct(string|\Throwable $reason = '', ?float $after = null)
    {
        $this->outcome = Outcome::of(WireOutcome::OUTCOME_NACK, $reason, $after);
        parent::__construct($this->outcome->reason);
    }

    public function outcome(): Outcome
    {
        return $this->outcome;
    }
}
