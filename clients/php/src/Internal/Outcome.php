<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\Protocol;
use Offramp\SettleAs;
use Offramp\V1\Outcome as WireOutcome;

/**
 * What a settlement says about a record: ack, nack, and so on, with reason and delay.
 *
 * @internal
 */
final class Outcome
{
    /** seconds: a century */
    private const LONGEST = 100 * 366 * 86_400.0;

    private function __construct(
        public readonly int $kind,
        public readonly string $reason = '',
        public readonly ?int $retryAfterMs = null,
    ) {
    }

    /**
     * @param int $kind a constant of `Offramp\V1\Outcome`
     * @throws \InvalidArgumentException for a delay that is negative or too long
     */
    public static function of(int $kind, string|\Throwable $reason = '', ?float $after = null): self
    {
        if ($after !== null && !($after >= 0 && $after < self::LONGEST)) {
            throw new \InvalidArgumentException(
                "after: $after seconds is not a time to wait; it must be 0 or more, and under a century"
            );
        }
        return new self($kind, self::text($reason), $after === null ? null : (int) round($after * 1_000));
    }

    public static function ack(): self
    {
        static $ack = new self(WireOutcome::OUTCOME_ACK);
        return $ack;
    }

    public static function release(): self
    {
        static $release = new self(WireOutcome::OUTCOME_RELEASE);
        return $release;
    }

    /** The outcome of a batch whose handler has thrown. */
    public static function fromException(\Throwable $error): self
    {
        return $error instanceof SettleAs ? $error->outcome() : self::of(WireOutcome::OUTCOME_NACK, $error);
    }

    public function equals(self $other): bool
    {
        return $this === $other
            || ($this->kind === $other->kind
                && $this->reason === $other->reason
                && $this->retryAfterMs === $other->retryAfterMs);
    }

    /** A reason as it is sent: an exception with its class, cut to what the sidecar keeps, valid UTF-8. */
    private static function text(string|\Throwable $reason): string
    {
        if ($reason instanceof \Throwable) {
            $name = (new \ReflectionClass($reason))->getShortName();
            $reason = $reason->getMessage() === '' ? $name : "$name: {$reason->getMessage()}";
        }
        return Utf8::clean($reason, Protocol::MOST_REASON);
    }
}
