<?php

declare(strict_types=1);

namespace Offramp\Internal;

/**
 * Growing pauses between tries.
 *
 * @internal
 */
final class Backoff
{
    private const FIRST = 0.02;
    private const LONGEST = 2.0;
    /** seconds between two looks at whether to go on */
    private const LOOK = 0.1;

    private float $next = self::FIRST;

    /**
     * Sleep for a while, at most until `stopped` says so.
     *
     * @param callable(): bool $stopped
     */
    public function pause(callable $stopped): void
    {
        // Not all workers of a pod at the same moment.
        $until = microtime(true) + $this->next * (0.8 + 0.4 * mt_rand() / mt_getrandmax());
        $this->next = min($this->next * 2, self::LONGEST);
        while (!$stopped() && ($left = $until - microtime(true)) > 0) {
            usleep((int) (min($left, self::LOOK) * 1_000_000));
        }
    }
}
