<?php

declare(strict_types=1);

namespace Offramp\Internal;

/**
 * The time that is left for a sidecar that does not answer, once this process is to stop. It begins when somebody first
 * sees that it is.
 *
 * @internal
 */
final class Farewell
{
    private const SECONDS = 5.0;
    /** seconds; what curl and gRPC take for no limit must not come of a limit that is reached */
    private const SHORTEST = 0.001;

    private float $ends = INF;

    /** @param \Closure(): bool $stopped whether this process is to stop */
    public function __construct(private readonly \Closure $stopped)
    {
    }

    /** Whether this process is to stop. */
    public function begun(): bool
    {
        if ($this->ends === INF && ($this->stopped)()) {
            $this->ends = microtime(true) + self::SECONDS;
        }
        return $this->ends !== INF;
    }

    /** Whether nobody should wait any longer. */
    public function over(): bool
    {
        return $this->begun() && microtime(true) >= $this->ends;
    }

    /** So many seconds, or those that are left. */
    public function limit(float $seconds): float
    {
        return $this->begun() ? max(min($seconds, $this->ends - microtime(true)), self::SHORTEST) : $seconds;
    }

    /** Sleep before the next try: until this process is to stop, or, if it is already, until this is over. */
    public function pause(Backoff $backoff): void
    {
        $backoff->pause($this->begun() ? $this->over(...) : $this->begun(...));
    }
}
