<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Internal\Verdict;
use Offramp\V1\Outcome;

/** Never try again: dead-letter it, with this reason. */
final class Reject extends SettleAs
{
    private readonly Verdict $verdict;

    public function __construct(string|\Throwable $reason)
    {
        $this->verdict = Verdict::of(Outcome::OUTCOME_REJECT, $reason);
        parent::__construct($this->verdict->reason);
    }

    public function verdict(): Verdict
    {
        return $this->verdict;
    }
}
