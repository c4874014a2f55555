<?php

declare(strict_types=1);

namespace Offramp;

/** A message to publish. Null is no value (a tombstone) or no key, which is not the same as an empty one. */
final class Message
{
    /** @internal */
    public const EVENT_TIME = 'ce_time';
    /** @internal */
    public const CONTENT_TYPE = 'content-type';

    /**
     * @param iterable<string|int, string|null|Header> $headers values by name; or Header objects, whose names may
     *     repeat
     * @param int|null $lane default: by the hash of the key, or round-robin without a key
     * @param int $timestampMs milliseconds since 1970; 0: now
     * @param float $deliverAfter seconds until the broker may deliver it; `Refused` where it cannot wait (Pulsar with
     *     shared subscriptions can)
     * @param string $deduplicationId of several messages with this id the topic gets the first; `Refused` where the
     *     broker cannot tell (the embedded broker can)
     * @param \DateTimeInterface|null $eventTime when what it tells of happened; the header `ce_time`, as in CloudEvents
     * @param string $contentType how the value is encoded, such as application/json; the header `content-type`
     */
    public function __construct(
        public readonly ?string $value,
        public readonly ?string $key = null,
        public readonly iterable $headers = [],
        public readonly ?int $lane = null,
        public readonly int $timestampMs = 0,
        public readonly float $deliverAfter = 0.0,
        public readonly string $deduplicationId = '',
        public readonly ?\DateTimeInterface $eventTime = null,
        public readonly string $contentType = '',
    ) {
    }
}
