<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Exception\Closed;
use Offramp\Exception\Drained;
use Offramp\Exception\OfframpException;
use Offramp\Internal\Connection;
use Offramp\Internal\Signals;

/**
 * Takes batches one after the other.
 *
 *     foreach (new Consumer('orders') as $batch) {
 *         work($batch);
 *         $batch->ack();
 *     }
 *
 * Settle every batch with one of its methods. The iteration waits for the sidecar for as long as it takes (see the
 * option `patience`), also when it restarts, and ends after `drain` or SIGTERM. Open it after a fork, never before.
 *
 * @implements \IteratorAggregate<int, Batch>
 */
final class Consumer implements \IteratorAggregate
{
    /** seconds that one call waits for a batch */
    private const FETCH_WAIT = 20.0;

    private readonly Connection $connection;
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
        // Weak, so that the object and its session end when the user drops it.
        $self = \WeakReference::create($this);
        $this->connection = new Connection($subscription, $options, static fn () => $self->get()?->draining ?? true);
    }

    /**
     * The next batch. Null if none arrived within `timeout` seconds. With 0 it returns what the sidecar has ready, and
     * waits at most a second for a sidecar that does not answer.
     *
     * @throws Drained when the consumer drains: no further batch comes
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
            $within = $timeout === null ? null : $left;
            $batches = $this->connection->exchange($nothing, 1, min($left, self::FETCH_WAIT), $within);
            if ($batches !== []) {
                if (!$this->draining) {
                    return $batches[0];
                }
                // It arrived just after the signal.
                $batches[0]->release();
            }
            if (microtime(true) >= $ends) {
                return null;
            }
        }
        throw new Drained("the consumer of $this->subscription drains: no further batch comes");
    }

    /** @return \Generator<int, Batch> */
    public function getIterator(): \Generator
    {
        while (true) {
            try {
                $batch = $this->take();
            } catch (Drained) {
                return;
            }
            yield $batch;
            // So that it lives only as long as the user keeps it.
            unset($batch);
        }
    }

    /** Whether there is a session with the sidecar now. */
    public function isConnected(): bool
    {
        return $this->connection->isConnected();
    }

    /** Ends the iteration. Batches in hand can still be settled. May be called from a signal handler. */
    public function drain(): void
    {
        $this->draining = true;
    }

    /**
     * Releases the batches that are not settled, without counting an attempt, and ends the session. If a consumer is
     * dropped without this, for example by an uncaught exception, the sidecar redelivers them as possibly processed and
     * counts the attempt.
     */
    public function close(): void
    {
        if (!$this->closed) {
            $this->closed = $this->draining = true;
            $this->signals?->stop();
            $this->connection->close();
        }
    }

    public function __destruct()
    {
        // A forked child must not end its parent's session.
        if (!$this->closed && getmypid() === $this->pid) {
            $this->signals?->stop();
            $this->connection->abandon();
        }
    }

    private function listen(): void
    {
        if ($this->options->signals && $this->signals === null) {
            $self = \WeakReference::create($this);
            $this->signals = Signals::listen(['SIGTERM'], static fn () => $self->get()?->drain());
        }
    }
}
