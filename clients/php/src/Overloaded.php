<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Internal\Verdict;
use Offramp\V1\Outcome;

/** Less, please: it comes back later, and the sidecar keeps fewer batches in flight. */
final class Overloaded extends SettleAs
{
    private readonly Verdict $verdict;

    public function __construct(string|\Throwable $reason = '', ?float $after = null)
    {
        $this->verdict = Verdict::of(Outcome::OUTCOME_OVERLOADED, $reason, $after);
        parent::__construct($this->verdict->reason);
    }

    public function verdict(): Verdict
    {
        return $this->verdict;
    }
}
