<?php

declare(strict_types=1);

namespace Offramp;

/** Numbers as in `Offramp\V1\SettleStatus`. */
enum SettleStatus: int
{
    /** there was no answer before this process stopped: whether it counts is unknown */
    case Unanswered = 0;
    /** the sidecar counts it: an ack will be committed */
    case Settled = 1;
    /** at least the records in `stale` were not settled: another worker has them, or they were settled before */
    case Stale = 2;
    /** nothing was settled: the lease is from before a restart of the sidecar, or was settled long ago */
    case Unknown = 3;
    /** nothing was settled: the sidecar does not accept this settlement, for the `reason`. The records stay leased */
    case Refused = 4;
}
