<?php

declare(strict_types=1);

namespace Offramp;

/** A message to publish. Null is no value (a tombstone) or no key, which is not the same as an empty one. */
final class Message
{
    /**
     * @param iterable<string|int, string|null|Header> $headers values by name; or Header objects, whose names may
     *     repeat
     * @param int|null $lane default: by the hash of the key, or round-robin without a key
     * @param int $timestampMs milliseconds since 1970; 0: now
     */
    public function __construct(
        public readonly ?string $value,
        public readonly ?string $key = null,
        public readonly iterable $headers = [],
        public readonly ?int $lane = null,
        public readonly int $timestampMs = 0,
    ) {
    }
}
