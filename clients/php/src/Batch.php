<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Exception\AlreadySettled;
use Offramp\Internal\Settler;
use Offramp\Internal\Settlement;
use Offramp\Internal\Outcome;
use Offramp\Internal\Wire;
use Offramp\V1\Outcome as WireOutcome;

/**
 * Records of one topic, leased to this process until they are settled. Can be iterated, counted, and indexed
 * (`$batch[0]`).
 *
 * Settle it once, with one of `ack`, `nack`, `reject`, `release` and `overloaded`: that is the outcome of all records
 * that were not marked one by one (see `Record`). Each of these calls the sidecar at once and returns its result. A
 * handler need not settle: the worker does it after the handler, in the same call that fetches the next batch.
 *
 * @implements \IteratorAggregate<int, Record>
 * @implements \ArrayAccess<int, Record>
 */
final class Batch implements \IteratorAggregate, \Countable, \ArrayAccess
{
    public readonly string $topic;
    /** identifies this delivery to the sidecar; opaque */
    public readonly string $lease;
    /** @var list<int> the distinct lanes of the records */
    public readonly array $lanes;
    /** seconds that the lease lasts from its delivery; 0: as long as the session lives */
    public readonly float $leaseFor;

    /** @var list<string> */
    private readonly array $records;
    /** @var list<array{int, int, int, bool}> */
    private readonly array $redeliveries;
    /** @var array<int, array{int, bool}>|null redeliveries by index, computed when they are first needed */
    private ?array $redeliveriesByIndex = null;
    /** @var array<int, Outcome> */
    private array $marks = [];
    /** @var array<int, true> settled while the rest stayed leased */
    private array $flushed = [];
    private bool $concluded = false;
    private bool $revoked = false;
    private readonly string $topicId;

    /** @internal */
    public function __construct(string $bytes, private readonly Settler $settler)
    {
        $fields = Wire::batch($bytes);
        $this->topic = $fields['topic'];
        $this->topicId = $fields['topicId'];
        $this->lease = $fields['lease'];
        $this->lanes = $fields['lanes'];
        $this->leaseFor = $fields['leaseForMs'] / 1_000;
        $this->records = $fields['records'];
        $this->redeliveries = $fields['redeliveries'];
    }

    /**
     * The identity of a record of this batch by its place.
     *
     * @internal
     */
    public function idOf(int $lane, int $position): string
    {
        return "$this->topic/$lane/$position" . ($this->topicId === '' ? '' : "@$this->topicId");
    }

    // The records

    public function count(): int
    {
        return count($this->records);
    }

    /** @return \Generator<int, Record> */
    public function getIterator(): \Generator
    {
        foreach ($this->records as $index => $bytes) {
            yield $index => new Record($this, $index, $bytes);
        }
    }

    public function offsetExists(mixed $offset): bool
    {
        return isset($this->records[$offset]);
    }

    public function offsetGet(mixed $offset): Record
    {
        if (!isset($this->records[$offset])) {
            throw new \OutOfBoundsException("there is no record $offset in a batch of " . count($this->records));
        }
        return new Record($this, $offset, $this->records[$offset]);
    }

    public function offsetSet(mixed $offset, mixed $value): void
    {
        throw new \LogicException('the records of a batch cannot be changed');
    }

    public function offsetUnset(mixed $offset): void
    {
        throw new \LogicException('the records of a batch cannot be changed');
    }

    // Settling

    /** Processed. Its positions may be committed. */
    public function ack(): SettleResult
    {
        return $this->settle(Outcome::ack());
    }

    /**
     * Failed, retry: after `after` seconds, or after the subscription's backoff. Counts as an attempt only for a record
     * alone; a failing batch is first split to find the record that fails.
     */
    public function nack(string|\Throwable $reason = '', ?float $after = null): SettleResult
    {
        return $this->settle(Outcome::of(WireOutcome::OUTCOME_NACK, $reason, $after));
    }

    /** Never succeeds: dead-letter it now. */
    public function reject(string|\Throwable $reason): SettleResult
    {
        return $this->settle(Outcome::of(WireOutcome::OUTCOME_REJECT, $reason));
    }

    /** Not tried: deliver it again at once, to any worker. Does not count as an attempt. */
    public function release(): SettleResult
    {
        return $this->settle(Outcome::release());
    }

    /** What the handler depends on is overloaded: deliver it again later, and keep fewer batches in flight. */
    public function overloaded(string|\Throwable $reason = '', ?float $after = null): SettleResult
    {
        return $this->settle(Outcome::of(WireOutcome::OUTCOME_OVERLOADED, $reason, $after));
    }

    /** Settles the records marked so far; the others stay leased. Null if no record was marked since. */
    public function flush(): ?SettleResult
    {
        $this->checkOpen();
        if ($this->marks === []) {
            return null;
        }
        $settlement = Settlement::only($this->lease, $this->marks);
        foreach ($this->marks as $index => $_) {
            $this->flushed[$index] = true;
        }
        $this->marks = [];
        return $this->settler->settle($this, $settlement);
    }

    /**
     * Extends the lease to at least `seconds` from now. Returns how long it lasts from now; 0.0 if it is lost. Only
     * needed with the option `lease`: without it a lease lasts as long as the session.
     */
    public function extend(float $seconds): float
    {
        if (!($seconds > 0)) {
            throw new \InvalidArgumentException("a lease is not extended by $seconds seconds; it must be more than 0");
        }
        return $this->settler->extend($this, $seconds);
    }

    /** Whether all records are settled. */
    public function isSettled(): bool
    {
        return $this->concluded || count($this->flushed) === count($this->records);
    }

    /**
     * Whether the session ended or a lane moved away, as far as this process knows: the records are or will be given to
     * another worker. A handler that can stop early should.
     */
    public function isLost(): bool
    {
        return $this->revoked || !$this->settler->isAlive($this);
    }

    // For the other classes of this package

    /** @internal */
    public function mark(int $index, Outcome $outcome): void
    {
        $this->checkOpen();
        if (isset($this->flushed[$index])) {
            throw new AlreadySettled("record $index of {$this->describe()} is settled already");
        }
        $this->marks[$index] = $outcome;
    }

    /**
     * The settlement of what is left, for the caller to send. Null if nothing is left.
     *
     * @internal
     */
    public function conclude(Outcome $rest): ?Settlement
    {
        if ($this->isSettled()) {
            return null;
        }
        $this->concluded = true;
        if ($this->flushed === []) {
            return Settlement::whole($this->lease, $rest, $this->marks);
        }
        $left = array_diff_key(array_fill(0, count($this->records), $rest), $this->flushed);
        return Settlement::only($this->lease, array_replace($left, $this->marks));
    }

    /**
     * @internal
     * @return array{int, bool} attempt, possibly processed
     */
    public function redelivery(int $index): array
    {
        if ($this->redeliveriesByIndex === null) {
            $this->redeliveriesByIndex = [];
            foreach ($this->redeliveries as [$first, $count, $attempt, $possiblyProcessed]) {
                $this->redeliveriesByIndex += array_fill($first, $count, [$attempt, $possiblyProcessed]);
            }
        }
        return $this->redeliveriesByIndex[$index] ?? [1, false];
    }

    /** @internal */
    public function revoke(): void
    {
        $this->revoked = true;
    }

    /** @internal */
    public function describe(): string
    {
        return 'batch ' . bin2hex($this->lease) . " of $this->topic (" . count($this->records) . ' records)';
    }

    private function settle(Outcome $outcome): SettleResult
    {
        $this->checkOpen();
        $settlement = $this->conclude($outcome);
        $this->concluded = true;
        if ($settlement === null) {
            // All records were flushed.
            return new SettleResult(SettleStatus::Settled);
        }
        return $this->settler->settle($this, $settlement);
    }

    private function checkOpen(): void
    {
        if ($this->concluded) {
            throw new AlreadySettled("{$this->describe()} is settled already");
        }
    }
}
