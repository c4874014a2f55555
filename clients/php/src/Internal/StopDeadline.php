<?php

declare(strict_types=1);

namespace Offramp\Internal;

/**
 * Limits how long a stopping process waits for a sidecar that does not answer. The time starts when a call first sees
 * that the process is stopping.
 *
 * @internal
 */
final class StopDeadline
{
    private const SECONDS = 5.0;
    /** seconds; curl and gRPC take 0 for no limit */
    private const SHORTEST = 0.001;

    private float $ends = INF;

    /** @param \Closure(): bool $stopped whether this process is stopping */
    public function __construct(private readonly \Closure $stopped)
    {
    }

    /** Whether this process is stopping. */
    public function stopping(): bool
    {
        if ($this->ends === INF && ($this->stopped)()) {
            $this->ends = microtime(true) + self::SECONDS;
        }
        return $this->ends !== INF;
    }

    /** Whether to give up. */
    public function expired(): bool
    {
        return $this->stopping() && microtime(true) >= $this->ends;
    }

    /** This many seconds, or the ones left if they are fewer. */
    public function limit(float $seconds): float
    {
        return $this->stopping() ? max(min($seconds, $this->ends - microtime(true)), self::SHORTEST) : $seconds;
    }

    /** Sleeps before the next attempt: until this process stops, or, if it is stopping, until the deadline. */
    public function pause(Backoff $backoff): void
    {
        $backoff->pause($this->stopping() ? $this->expired(...) : $this->stopping(...));
    }
}
