<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Internal\Verdict;
use Offramp\V1\Outcome;

/** Try again, `after` so many seconds if given. Counts as an attempt. */
final class Retry extends SettleAs
{
    private readonly Verdict $verdict;

    public function __construct(string|\Throwable $reason = '', ?float $after = null)
    {
        $this->verdict = Verdict::of(Outcome::OUTCOME_NACK, $reason, $after);
        parent::__construct($this->verdict->reason);
    }

    public function verdict(): Verdict
    {
        return $this->verdict;
    }
}
