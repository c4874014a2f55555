<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Exception\AlreadySettled;
use Offramp\Internal\Desk;
use Offramp\Internal\Settlement;
use Offramp\Internal\Verdict;
use Offramp\Internal\Wire;
use Offramp\V1\Outcome;

/**
 * Records of one topic, leased to this process until they are settled. Iterate over it, count it, `$batch[0]`.
 *
 * Settle it once, by one of `ack`, `nack`, `reject`, `release` and `overloaded`: that says how all records fared that
 * were not marked one by one (see `Record`). Each of these asks the sidecar at once and gives its answer. In a
 * handler there is no need to: the worker settles what the handler has not, together with asking for the next batch.
 *
 * @implements \IteratorAggregate<int, Record>
 * @implements \ArrayAccess<int, Record>
 */
final class Batch implements \IteratorAggregate, \Countable, \ArrayAccess
{
    public readonly string $topic;
    /** names this delivery to the sidecar; opaque */
    public readonly string $lease;
    /** @var list<int> the distinct lanes of the records */
    public readonly array $lanes;
    /** seconds that the lease lasts from its delivery; 0: as long as the session lives */
    public readonly float $leaseFor;

    /** @var list<string> */
    private readonly array $records;
    /** @var list<array{int, int, int, bool}> */
    private readonly array $redeliveries;
    /** @var array<int, array{int, bool}>|null redeliveries by index, made when they are first asked for */
    private ?array $again = null;
    /** @var array<int, Verdict> */
    private array $marks = [];
    /** @var array<int, true> settled while the rest stayed in hand */
    private array $flushed = [];
    private bool $concluded = false;
    private bool $revoked = false;

    /** @internal */
    public function __construct(string $bytes, private readonly Desk $desk)
    {
        $fields = Wire::batch($bytes);
        $this->topic = $fields['topic'];
        $this->lease = $fields['lease'];
        $this->lanes = $fields['lanes'];
        $this->leaseFor = $fields['leaseForMs'] / 1_000;
        $this->records = $fields['records'];
        $this->redeliveries = $fields['redeliveries'];
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

    /** Done. Its positions may be committed. */
    public function ack(): SettleResult
    {
        return $this->settle(Verdict::ack());
    }

    /**
     * Failed, try again: after so many seconds, or after the subscription's backoff. Counts as an attempt for a record
     * alone; a failing batch is first split to find the record that fails.
     */
    public function nack(string|\Throwable $reason = '', ?float $after = null): SettleResult
    {
        return $this->settle(Verdict::of(Outcome::OUTCOME_NACK, $reason, $after));
    }

    /** Will never succeed: dead-letter it now. */
    public function reject(string|\Throwable $reason): SettleResult
    {
        return $this->settle(Verdict::of(Outcome::OUTCOME_REJECT, $reason));
    }

    /** Not tried: deliver it again at once, to whoever is free. Does not count. */
    public function release(): SettleResult
    {
        return $this->settle(Verdict::release());
    }

    /** What is behind the handler asks for less: deliver it again later, and keep fewer batches in flight. */
    public function overloaded(string|\Throwable $reason = '', ?float $after = null): SettleResult
    {
        return $this->settle(Verdict::of(Outcome::OUTCOME_OVERLOADED, $reason, $after));
    }

    /** Settle the records marked so far, and keep the others in hand. Null if no record was marked since. */
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
        return $this->desk->settle($this, $settlement);
    }

    /**
     * Ask for the lease to last so many seconds from now, or longer if it does already. Answers how many it lasts
     * from now; 0.0 if it is lost. Only needed with the option `lease`: without it a lease lasts as long as the
     * session.
     */
    public function extend(float $seconds): float
    {
        if (!($seconds > 0)) {
            throw new \InvalidArgumentException("a lease is not extended by $seconds seconds; it must be more than 0");
        }
        return $this->desk->extend($this, $seconds);
    }

    /** Nothing of it is left to settle. */
    public function isSettled(): bool
    {
        return $this->concluded || count($this->flushed) === count($this->records);
    }

    /**
     * The session ended or a lane moved away, as far as this process knows: the records are somebody else's, or will be
     * soon. A handler that can stop early should.
     */
    public function isLost(): bool
    {
        return $this->revoked || !$this->desk->lives($this);
    }

    // For the other classes of this package

    /** @internal */
    public function mark(int $index, Verdict $verdict): void
    {
        $this->checkOpen();
        if (isset($this->flushed[$index])) {
            throw new AlreadySettled("record $index of {$this->describe()} is settled already");
        }
        $this->marks[$index] = $verdict;
    }

    /**
     * What is left to say, to be sent by whoever asks for it. Null if nothing is.
     *
     * @internal
     */
    public function conclude(Verdict $rest): ?Settlement
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
        if ($this->again === null) {
            $this->again = [];
            foreach ($this->redeliveries as [$first, $count, $attempt, $possiblyProcessed]) {
                $this->again += array_fill($first, $count, [$attempt, $possiblyProcessed]);
            }
        }
        return $this->again[$index] ?? [1, false];
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

    private function settle(Verdict $verdict): SettleResult
    {
        $this->checkOpen();
        $settlement = $this->conclude($verdict);
        $this->concluded = true;
        if ($settlement === null) {
            // Flushed to the last record: there is nothing left to say.
            return new SettleResult(SettleStatus::Settled);
        }
        return $this->desk->settle($this, $settlement);
    }

    private function checkOpen(): void
    {
        if ($this->concluded) {
            throw new AlreadySettled("{$this->describe()} is settled already");
        }
    }
}
