<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Internal\Outcome;
use Offramp\Internal\Wire;
use Offramp\V1\Outcome as WireOutcome;

/**
 * One broker message.
 *
 * `ack`, `nack`, `reject`, `release` and `overloaded` mark this record; nothing is sent before the batch is settled or
 * flushed, and until then a later mark replaces an earlier one. Records without a mark get the outcome of their batch.
 */
final class Record
{
    /** null: the message has no key, which is not the same as an empty one */
    public readonly ?string $key;
    /** null: a null value (a tombstone on a compacted topic), which is not the same as an empty one */
    public readonly ?string $value;
    /** @var list<Header> in the order of the message; names may repeat */
    public readonly array $headers;
    /** the stream within the topic, for example a Kafka partition */
    public readonly int $lane;
    /** the place in the lane, for example a Kafka offset */
    public readonly int $position;
    /** the broker's own id of the record if it has one (a Pulsar message id); else empty */
    public readonly string $ref;
    /** the broker's timestamp in milliseconds since 1970; 0 if there is none */
    public readonly int $timestampMs;
    /** 1 for the first delivery, one more after each failed one */
    public readonly int $attempt;
    /** the outcome of an earlier delivery is unknown: the record may have been processed already */
    public readonly bool $possiblyProcessed;

    /** @internal */
    public function __construct(public readonly Batch $batch, public readonly int $index, string $bytes)
    {
        [
            $this->key, $this->value, $this->headers, $this->lane, $this->position, $this->ref, $this->timestampMs,
        ] = Wire::record($bytes);
        [$this->attempt, $this->possiblyProcessed] = $batch->redelivery($index);
    }

    /**
     * The broker's own identity of the record, the same at every delivery and in dead letters: an idempotency key.
     * Opaque.
     */
    public function id(): string
    {
        return $this->batch->idOf($this->lane, $this->position);
    }

    /** The value of the last header of this name; null if there is none. */
    public function header(string $name): ?string
    {
        $value = null;
        foreach ($this->headers as $header) {
            if ($header->name === $name) {
                $value = $header->value;
            }
        }
        return $value;
    }

    /** The broker's timestamp in UTC; null if there is none. */
    public function timestamp(): ?\DateTimeImmutable
    {
        if ($this->timestampMs === 0) {
            return null;
        }
        $text = sprintf('%d.%03d', intdiv($this->timestampMs, 1_000), $this->timestampMs % 1_000);
        return \DateTimeImmutable::createFromFormat('U.v', $text, new \DateTimeZone('UTC')) ?: null;
    }

    /** When what it tells of happened: the header `ce_time`. Null if there is none. */
    public function eventTime(): ?\DateTimeImmutable
    {
        $text = $this->header(Message::EVENT_TIME);
        // Nothing but RFC 3339: PHP would take many other texts for a time.
        if ($text === null || preg_match('/^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/D', $text) !== 1) {
            return null;
        }
        try {
            return (new \DateTimeImmutable($text))->setTimezone(new \DateTimeZone('UTC'));
        } catch (\Exception) {
            return null;
        }
    }

    /** How the value is encoded: the header `content-type`. Null if there is none. */
    public function contentType(): ?string
    {
        return $this->header(Message::CONTENT_TYPE);
    }

    /** Processed. */
    public function ack(): void
    {
        $this->batch->mark($this->index, Outcome::ack());
    }

    /** Failed, retry: after `after` seconds, or after the subscription's backoff. Counts as an attempt. */
    public function nack(string|\Throwable $reason = '', ?float $after = null): void
    {
        $this->batch->mark($this->index, Outcome::of(WireOutcome::OUTCOME_NACK, $reason, $after));
    }

    /** Never succeeds: dead-letter it now. */
    public function reject(string|\Throwable $reason): void
    {
        $this->batch->mark($this->index, Outcome::of(WireOutcome::OUTCOME_REJECT, $reason));
    }

    /** Not tried: deliver it again at once. Does not count as an attempt. */
    public function release(): void
    {
        $this->batch->mark($this->index, Outcome::release());
    }

    /** What the handler depends on is overloaded: deliver it again later. Does not count as an attempt. */
    public function overloaded(string|\Throwable $reason = '', ?float $after = null): void
    {
        $this->batch->mark($this->index, Outcome::of(WireOutcome::OUTCOME_OVERLOADED, $reason, $after));
    }
}
