<?php

declare(strict_types=1);

namespace Offramp;

/** Numbers as in `Offramp\V1\SettleStatus`. */
enum SettleStatus: int
{
    /** no answer came before this process left: whether it counts is not known */
    case Unanswered = 0;
    /** the sidecar counts it: an ack will be committed */
    case Settled = 1;
    /** at least the records in `stale` were not settled: they were given to another, or settled otherwise before */
    case Stale = 2;
    /** nothing was settled: the lease is from before a restart of the sidecar, or was settled long ago */
    case Unknown = 3;
}
