<?php

declare(strict_types=1);

namespace Offramp\Internal;

/**
 * Growing pauses between attempts.
 *
 * @internal
 */
final class Backoff
{
    private const FIRST = 0.02;
    private const LONGEST = 2.0;
    /** seconds between two calls of `stopped` */
    private const POLL_INTERVAL = 0.1;

    private float $next = self::FIRST;

    /**
     * Sleeps for the next pause, or until `stopped` returns true.
     *
     * @param callable(): bool $stopped
     */
    public function pause(callable $stopped): void
    {
        // Jitter, so that the workers of a pod do not reconnect at the same moment.
        $until = microtime(true) + $this->next * (0.8 + 0.4 * mt_rand() / mt_getrandmax());
        $this->next = min($this->next * 2, self::LONGEST);
        while (!$stopped() && ($left = $until - microtime(true)) > 0) {
            usleep((int) (min($left, self::POLL_INTERVAL) * 1_000_000));
        }
    }
}
