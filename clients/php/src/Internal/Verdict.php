<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\Protocol;
use Offramp\SettleAs;
use Offramp\V1\Outcome;

/**
 * An outcome and what goes with it.
 *
 * @internal
 */
final class Verdict
{
    /** seconds: a century */
    private const LONGEST = 100 * 366 * 86_400.0;

    private function __construct(
        public readonly int $outcome,
        public readonly string $reason = '',
        public readonly ?int $retryAfterMs = null,
    ) {
    }

    /** @throws \InvalidArgumentException for a time that nobody can wait */
    public static function of(int $outcome, string|\Throwable $reason = '', ?float $after = null): self
    {
        if ($after !== null && !($after >= 0 && $after < self::LONGEST)) {
            throw new \InvalidArgumentException(
                "after: $after seconds is not a time to wait; it must be 0 or more, and under a century"
            );
        }
        return new self($outcome, self::text($reason), $after === null ? null : (int) round($after * 1_000));
    }

    public static function ack(): self
    {
        static $ack = new self(Outcome::OUTCOME_ACK);
        return $ack;
    }

    public static function release(): self
    {
        static $release = new self(Outcome::OUTCOME_RELEASE);
        return $release;
    }

    /** What a handler's exception says of its batch. */
    public static function ofThrown(\Throwable $error): self
    {
        return $error instanceof SettleAs ? $error->verdict() : self::of(Outcome::OUTCOME_NACK, $error);
    }

    public function equals(self $other): bool
    {
        return $this === $other
            || ($this->outcome === $other->outcome
                && $this->reason === $other->reason
                && $this->retryAfterMs === $other->retryAfterMs);
    }

    /** A reason as it travels: an exception with its name, no more than is kept of it, and nothing but UTF-8. */
    private static function text(string|\Throwable $reason): string
    {
        if ($reason instanceof \Throwable) {
            $name = (new \ReflectionClass($reason))->getShortName();
            $reason = $reason->getMessage() === '' ? $name : "$name: {$reason->getMessage()}";
        }
        return Utf8::clean($reason, Protocol::MOST_REASON);
    }
}
