<?php

declare(strict_types=1);

namespace Offramp\Internal;

/**
 * The outcome of a batch or of parts of it, encoded as an `offramp.v1.Settlement`.
 *
 * Encoded by hand, as `Wire` decodes: a process with a fast handler does this thousands of times a second. The tests
 * compare it with generated code.
 *
 * @internal
 */
final class Settlement
{
    private ?string $bytes = null;

    /**
     * @param Outcome|null $rest of the records that are in no part; null: they stay leased
     * @param list<array{int, int, Outcome}> $parts first, count and outcome, ascending
     */
    private function __construct(
        public readonly string $lease,
        private readonly ?Outcome $rest,
        private readonly array $parts,
    ) {
    }

    /**
     * Settles all records of a batch: with `rest` those that are not marked.
     *
     * @param array<int, Outcome> $marks by index
     */
    public static function whole(string $lease, Outcome $rest, array $marks): self
    {
        $others = array_filter($marks, static fn (Outcome $one): bool => !$one->equals($rest));
        return new self($lease, $rest, self::toParts($others));
    }

    /**
     * Settles these records only; the others stay leased.
     *
     * @param array<int, Outcome> $marks by index, not empty
     */
    public static function only(string $lease, array $marks): self
    {
        return new self($lease, null, self::toParts($marks));
    }

    /** An `offramp.v1.Settlement`. */
    public function encode(): string
    {
        return $this->bytes ??= Wire::lengthDelimited(1, $this->lease)
            . ($this->rest === null ? '' : self::outcome($this->rest, 2))
            . implode('', array_map(self::part(...), $this->parts))
            . ($this->rest === null ? "\x30\x01" : '');
    }

    /** The same records with this outcome instead. */
    public function with(Outcome $outcome): self
    {
        $parts = array_map(static fn (array $one): array => [$one[0], $one[1], $outcome], $this->parts);
        return $this->rest === null ? new self($this->lease, null, $parts) : new self($this->lease, $outcome, []);
    }

    /** How many parts it has. */
    public function parts(): int
    {
        return count($this->parts);
    }

    /**
     * The same settlement in pieces that are each within the limit, for a request that would be too large.
     *
     * @return non-empty-list<self>
     */
    public function pieces(int $records, int $mostBytes, int $mostParts): array
    {
        if (strlen($this->encode()) <= $mostBytes && count($this->parts) <= $mostParts) {
            return [$this];
        }
        $pieces = $parts = [];
        $size = $envelope = strlen($this->lease) + 16;
        foreach ($this->allParts($records) as $part) {
            $more = strlen(self::part($part));
            if ($parts !== [] && ($size + $more > $mostBytes || count($parts) === $mostParts)) {
                $pieces[] = new self($this->lease, null, $parts);
                $parts = [];
                $size = $envelope;
            }
            $parts[] = $part;
            $size += $more;
        }
        $pieces[] = new self($this->lease, null, $parts);
        return $pieces;
    }

    /**
     * Consecutive records with the same outcome share one part.
     *
     * @param array<int, Outcome> $marks
     * @return list<array{int, int, Outcome}>
     */
    private static function toParts(array $marks): array
    {
        ksort($marks);
        $parts = [];
        $last = -1;
        foreach ($marks as $index => $outcome) {
            if ($last >= 0 && $index === $parts[$last][0] + $parts[$last][1] && $outcome->equals($parts[$last][2])) {
                $parts[$last][1]++;
            } else {
                $parts[++$last] = [$index, 1, $outcome];
            }
        }
        return $parts;
    }

    /**
     * The parts, with parts for the rest between them.
     *
     * @return list<array{int, int, Outcome}>
     */
    private function allParts(int $records): array
    {
        if ($this->rest === null) {
            return $this->parts;
        }
        $all = [];
        $at = 0;
        foreach ([...$this->parts, [$records, 0, $this->rest]] as $part) {
            if ($part[0] > $at) {
                $all[] = [$at, $part[0] - $at, $this->rest];
            }
            if ($part[1] > 0) {
                $all[] = $part;
            }
            $at = $part[0] + $part[1];
        }
        return $all;
    }

    /** @param array{int, int, Outcome} $part */
    private static function part(array $part): string
    {
        [$first, $count, $outcome] = $part;
        return Wire::lengthDelimited(5, Wire::number(1, $first) . Wire::number(2, $count) . self::outcome($outcome, 3));
    }

    /** The consecutive fields outcome, reason and retry_after_ms of a settlement or a part, from this one on. */
    private static function outcome(Outcome $outcome, int $field): string
    {
        $bytes = Wire::number($field, $outcome->kind);
        if ($outcome->reason !== '') {
            $bytes .= Wire::lengthDelimited($field + 1, $outcome->reason);
        }
        if ($outcome->retryAfterMs !== null) {
            $bytes .= Wire::number($field + 2, $outcome->retryAfterMs, always: true);
        }
        return $bytes;
    }
}
