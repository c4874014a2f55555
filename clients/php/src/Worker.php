<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Exception\OfframpException;
use Offramp\Internal\Link;
use Offramp\Internal\Settlement;
use Offramp\Internal\Signals;
use Offramp\Internal\Verdict;

/**
 * Calls a handler with one batch after the other, in this process.
 *
 * A handler that returns has done its batch: it is acked, except for records that it marked otherwise. One that
 * throws has not: what it did not mark is retried, with the exception as the reason, unless it throws `Retry`,
 * `Reject`, `Release` or `Overloaded`. What became of a batch is said together with the question for the next one, in
 * a single call.
 *
 * For more than one process see `bin/offramp-worker` and `Pool`.
 */
final class Worker
{
    /** seconds that one call waits for a batch */
    private const WAIT = 20.0;
    /** seconds that a prefetched batch may wait here before it is given back */
    private const PATIENCE = 1.0;

    private readonly \Closure $handler;
    private bool $draining = false;
    /** a limit was reached */
    private bool $spent = false;
    private bool $ran = false;
    private int $parent = 0;

    /**
     * @param callable(Batch): mixed $handler
     * @param int|null $maxBatches stop after so many, so that a supervisor starts a fresh process
     * @param int|null $memoryLimit bytes; stop after the batch that brought PHP's memory above this
     * @param int $prefetch further batches that are fetched in the same call and wait here for their turn, which
     *     saves calls if a handler takes a few milliseconds. No other process can take them meanwhile: when they have
     *     waited for a second they are given back, but a handler that blocks holds them as long as it does
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

    /** The same worker with other limits, for whoever runs several. */
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
     * Work until `drain` is called, SIGTERM, SIGINT or SIGQUIT comes (with ext-pcntl), or a limit is reached. Then no
     * further batch is taken, the one in hand is finished and settled, and the sidecar is told. Waits for the sidecar
     * for as long as it takes (see the option `patience`), also when it restarts. A worker runs once.
     *
     * @throws OfframpException when the sidecar says no
     */
    public function run(): void
    {
        if ($this->ran) {
            throw new \LogicException('this worker has been run already; make a new one');
        }
        $this->ran = true;
        $link = new Link($this->subscription, $this->options, fn (): bool => $this->isStopping());
        $signals = $this->signals();
        try {
            $this->work($link);
        } finally {
            $signals?->restore();
            $link->cut();
        }
    }

    /** Take no further batch, and let `run` return once the one in hand is settled. May be called by the handler. */
    public function drain(): void
    {
        $this->draining = true;
    }

    /**
     * Run as one of several under the process of this number: drain when that is gone. Only SIGTERM counts, for
     * Ctrl-C reaches the parent too, which says what it means; and it may come twice, from the parent and from
     * whoever stops the group.
     *
     * @internal
     */
    public function dependOn(int $parent): void
    {
        $this->parent = $parent;
    }

    /**
     * Whether it ended since a limit was reached, so that another is to take its place.
     *
     * @internal
     */
    public function isSpent(): bool
    {
        return $this->spent;
    }

    private function signals(): ?Signals
    {
        if ($this->parent !== 0) {
            return new Signals(['SIGTERM'], $this->drain(...), polite: false, sticky: true);
        }
        return $this->options->signals
            ? new Signals(['SIGTERM', 'SIGINT', 'SIGQUIT'], $this->drain(...), polite: false)
            : null;
    }

    private function isStopping(): bool
    {
        if ($this->parent !== 0 && posix_getppid() !== $this->parent) {
            $this->draining = true;
        }
        return $this->draining;
    }

    private function work(Link $link): void
    {
        $said = [];
        $done = 0;
        $impatient = false;
        while (!$this->isStopping()) {
            $batches = $link->exchange($said, $impatient ? 1 : 1 + $this->prefetch, self::WAIT);
            $came = hrtime(true);
            $impatient = false;
            foreach ($batches as $batch) {
                $tries = !$impatient && !$this->draining;
                // One that waited too long, or crossed with a signal, was not tried.
                $settlement = $tries ? $this->handle($link, $batch) : $batch->conclude(Verdict::release());
                if ($settlement !== null) {
                    $said[] = [$batch, $settlement];
                }
                $done += $tries ? 1 : 0;
                $this->spent = $this->spent
                    || $done === $this->maxBatches
                    || ($this->memoryLimit ?? INF) < memory_get_usage(true);
                $this->draining = $this->draining || $this->spent;
                $impatient = (hrtime(true) - $came) / 1e9 > self::PATIENCE;
            }
            unset($batches, $batch, $settlement);
        }
        $link->settleLast($said);
    }

    private function handle(Link $link, Batch $batch): ?Settlement
    {
        try {
            if (($this->handler)($batch) instanceof \Generator) {
                // An ack would lose the records.
                throw new \LogicException(
                    'the handler returned a generator, and its work was not done: a handler must not yield'
                );
            }
            return $batch->conclude(Verdict::ack());
        } catch (\Throwable $error) {
            if (!$error instanceof SettleAs) {
                $what = $batch->isSettled() ? ', which it had settled already' : '';
                $link->log()->warning(
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
            return $batch->conclude(Verdict::ofThrown($error));
        }
    }
}
