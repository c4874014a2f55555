<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Exception\OfframpException;
use Offramp\Internal\Connection;
use Offramp\Internal\Outcome;
use Offramp\Internal\Settlement;
use Offramp\Internal\Signals;

/**
 * Calls a handler with one batch after the other, in this process.
 *
 * When the handler returns, the batch is acked, except for records that it marked otherwise. When it throws, the
 * records that it did not mark are retried, with the exception as the reason; `Retry`, `Reject`, `Release` and
 * `Overloaded` set another outcome. One call settles a batch and fetches the next one.
 *
 * For more than one process see `bin/offramp-worker` and `Pool`.
 */
final class Worker
{
    /** seconds that one call waits for a batch */
    private const FETCH_WAIT = 20.0;
    /** seconds that a prefetched batch may wait before it is released */
    private const PREFETCH_TIMEOUT = 1.0;

    private readonly \Closure $handler;
    private bool $draining = false;
    /** `maxBatches` or `memoryLimit` is reached */
    private bool $limitReached = false;
    private bool $ran = false;
    private int $parent = 0;

    /**
     * @param callable(Batch): mixed $handler
     * @param int|null $maxBatches stop after this many, so that a supervisor starts a fresh process
     * @param int|null $memoryLimit bytes; stop after the batch that brought PHP's memory above this
     * @param int $prefetch further batches that are fetched in the same call and wait here, which saves calls if the
     *     handler takes a few milliseconds. No other process can take them meanwhile: they are released after a second,
     *     but only once the handler has returned
     * @throws \InvalidArgumentException
     */
    public function __construct(
        public readonly string $subscription,
        callable $handler,
        public readonly Options $options = new Options(),
        public readonly ?int $maxBatches = null,
        public readonly ?int $memoryLimit = null,
        public readonly int $prefetch = 0,
    ) {
        $this->handler = $handler(...);
        if ($subscription === '') {
            throw new \InvalidArgumentException("subscription: a name is needed, as in the sidecar's configuration");
        }
        if ($maxBatches !== null && $maxBatches < 1) {
            throw new \InvalidArgumentException("maxBatches: $maxBatches is less than 1");
        }
        if ($memoryLimit !== null && $memoryLimit < 1) {
            throw new \InvalidArgumentException("memoryLimit: $memoryLimit is less than 1");
        }
        if ($prefetch < 0) {
            throw new \InvalidArgumentException("prefetch: $prefetch is less than 0");
        }
    }

    /** The same worker with other limits. */
    public function with(?int $maxBatches = null, ?int $memoryLimit = null, ?int $prefetch = null): self
    {
        return new self(
            $this->subscription,
            $this->handler,
            $this->options,
            $maxBatches ?? $this->maxBatches,
            $memoryLimit ?? $this->memoryLimit,
            $prefetch ?? $this->prefetch,
        );
    }

    /**
     * Works until `drain` is called, on SIGTERM, SIGINT or SIGQUIT (with ext-pcntl), or until a limit is reached. Then
     * it takes no further batch, finishes and settles the current one, and ends the session. Waits for the sidecar for
     * as long as it takes (see the option `patience`), also when it restarts. A worker runs once.
     *
     * @throws OfframpException when the sidecar refuses
     */
    public function run(): void
    {
        if ($this->ran) {
            throw new \LogicException('this worker has been run already; make a new one');
        }
        $this->ran = true;
        $connection = new Connection($this->subscription, $this->options, fn (): bool => $this->isStopping());
        $signals = $this->signals();
        try {
            $this->work($connection);
        } finally {
            $connection->abandon();
            // Last: it may call a handler of the app that exits.
            $signals?->stop();
        }
    }

    /** Takes no further batch; `run` returns once the current one is settled. May be called by the handler. */
    public function drain(): void
    {
        $this->draining = true;
    }

    /**
     * Makes this worker a child of the process with this pid: it drains when that is gone. It handles only SIGTERM,
     * since Ctrl-C reaches the parent too, and handles it more than once, since it may come from the parent and from
     * whatever stops the process group.
     *
     * @internal
     */
    public function dependOn(int $parent): void
    {
        $this->parent = $parent;
    }

    /**
     * Whether it stopped since a limit was reached, so that another worker is to replace it.
     *
     * @internal
     */
    public function limitReached(): bool
    {
        return $this->limitReached;
    }

    private function signals(): ?Signals
    {
        if ($this->parent !== 0) {
            return Signals::listen(['SIGTERM'], $this->drain(...), finishes: true, everyTime: true);
        }
        return $this->options->signals
            ? Signals::listen(['SIGTERM', 'SIGINT', 'SIGQUIT'], $this->drain(...), finishes: true)
            : null;
    }

    private function isStopping(): bool
    {
        if ($this->parent !== 0 && posix_getppid() !== $this->parent) {
            $this->draining = true;
        }
        return $this->draining;
    }

    private function work(Connection $connection): void
    {
        $pending = [];
        $handled = 0;
        $late = false;
        while (!$this->isStopping()) {
            $batches = $connection->exchange($pending, $late ? 1 : 1 + $this->prefetch, self::FETCH_WAIT);
            $fetched = hrtime(true);
            $late = false;
            foreach ($batches as $batch) {
                // A batch that waited too long, or arrived just after a signal, is released untried.
                $try = !$late && !$this->draining;
                $settlement = $try ? $this->handle($connection, $batch) : $batch->conclude(Outcome::release());
                if ($settlement !== null) {
                    $pending[] = [$batch, $settlement];
                }
                $handled += $try ? 1 : 0;
                $this->limitReached = $this->limitReached
                    || $handled === $this->maxBatches
                    || ($this->memoryLimit ?? INF) < memory_get_usage(true);
                $this->draining = $this->draining || $this->limitReached;
                $late = (hrtime(true) - $fetched) / 1e9 > self::PREFETCH_TIMEOUT;
            }
            unset($batches, $batch, $settlement);
        }
        $connection->settleLast($pending);
    }

    private function handle(Connection $connection, Batch $batch): ?Settlement
    {
        try {
            if (($this->handler)($batch) instanceof \Generator) {
                // Its body has not run: an ack would lose the records.
                throw new \LogicException(
                    'the handler returned a generator, so its code has not run: a handler must not yield'
                );
            }
            return $batch->conclude(Outcome::ack());
        } catch (\Throwable $error) {
            if (!$error instanceof SettleAs) {
                $what = $batch->isSettled() ? ', which it had settled already' : '';
                $connection->log()->warning(
                    sprintf(
                        'the handler failed for %s%s: %s: %s (%s:%d)',
                        $batch->describe(),
                        $what,
                        $error::class,
                        $error->getMessage(),
                        $error->getFile(),
                        $error->getLine(),
                    ),
                    ['exception' => $error],
                );
            }
            return $batch->conclude(Outcome::fromException($error));
        }
    }
}
