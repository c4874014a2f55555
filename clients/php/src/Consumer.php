<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Exception\Closed;
use Offramp\Exception\OfframpException;
use Offramp\Internal\Link;
use Offramp\Internal\Signals;

/**
 * Batches one after the other.
 *
 *     foreach (new Consumer('orders') as $batch) {
 *         work($batch);
 *         $batch->ack();
 *     }
 *
 * Every batch is to be settled by one of its methods. Iteration waits for the sidecar for as long as it takes (see the
 * option `patience`), also when it restarts, and ends after `drain` or SIGTERM. Open it after a fork, never before.
 *
 * @implements \IteratorAggregate<int, Batch>
 */
final class Consumer implements \IteratorAggregate
{
    /** seconds that one call waits for a batch */
    private const WAIT = 20.0;

    private readonly Link $link;
    private readonly int $pid;
    private ?Signals $signals = null;
    private bool $draining = false;
    private bool $closed = false;

    /**
     * Does not connect yet.
     *
     * @throws \InvalidArgumentException
     * @throws Exception\MissingExtension
     */
    public function __construct(
        private readonly string $subscription,
        private readonly Options $options = new Options(),
    ) {
        $this->pid = (int) getmypid();
        // Weak: the object must end when its user drops it, and the session with it.
        $me = \WeakReference::create($this);
        $this->link = new Link($subscription, $options, static fn (): bool => $me->get()?->draining ?? true);
    }

    /**
     * The next batch. Null if none came within so many seconds, or if none will come since it drains. With 0 it finds
     * what the sidecar has at hand; a sidecar that does not answer is waited for for a second then.
     *
     * @throws OfframpException
     */
    public function take(?float $timeout = null): ?Batch
    {
        if ($this->closed) {
            throw new Closed("the consumer of $this->subscription is closed");
        }
        $this->listen();
        $ends = $timeout === null ? INF : microtime(true) + $timeout;
        while (!$this->draining) {
            $left = max($ends - microtime(true), 0.0);
            $nothing = [];
            $batches = $this->link->exchange($nothing, 1, min($left, self::WAIT), $timeout === null ? null : $left);
            if ($batches !== []) {
                if (!$this->draining) {
                    return $batches[0];
                }
                // It crossed with the signal.
                $batches[0]->release();
            }
            if (microtime(true) >= $ends) {
                return null;
            }
        }
        return null;
    }

    /** @return \Generator<int, Batch> */
    public function getIterator(): \Generator
    {
        while (($batch = $this->take()) !== null) {
            yield $batch;
            // Not kept any longer than its user keeps it.
            unset($batch);
        }
    }

    /** There is a session with the sidecar now. */
    public function isConnected(): bool
    {
        return $this->link->connected();
    }

    /** End the iteration. What is in hand can still be settled. May be called from a signal handler. */
    public function drain(): void
    {
        $this->draining = true;
    }

    /**
     * Leave. Batches that are in hand and not settled are released: they are delivered again, without counting as an
     * attempt. A consumer that is dropped without this, as by an exception that nobody catches, leaves them to the
     * sidecar, which delivers them again as possibly processed and counts the attempt.
     */
    public function close(): void
    {
        if (!$this->closed) {
            $this->closed = $this->draining = true;
            $this->signals?->restore();
            $this->link->leave();
        }
    }

    public function __destruct()
    {
        // A child that was forked must not take leave in the name of its parent.
        if (!$this->closed && getmypid() === $this->pid) {
            $this->signals?->restore();
            $this->link->cut();
        }
    }

    private function listen(): void
    {
        if ($this->options->signals && $this->signals === null) {
            $me = \WeakReference::create($this);
            $this->signals = new Signals(['SIGTERM'], static fn () => $me->get()?->drain(), polite: true);
        }
    }
}
