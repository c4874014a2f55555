<?php

declare(strict_types=1);

namespace Offramp\Internal;

/**
 * What became of a batch, or of parts of it, and its bytes as they travel.
 *
 * Written by hand, as `Wire` reads: a process with a fast handler says this thousands of times a second. The tests
 * hold it against generated code.
 *
 * @internal
 */
final class Settlement
{
    private ?string $bytes = null;

    /**
     * @param Verdict|null $rest for the records that no part names; null: they stay leased
     * @param list<array{int, int, Verdict}> $parts first, count and verdict, ascending
     */
    private function __construct(
        public readonly string $lease,
        private readonly ?Verdict $rest,
        private readonly array $parts,
    ) {
    }

    /**
     * All records of a batch: `rest` for those that were not marked.
     *
     * @param array<int, Verdict> $marks by index
     */
    public static function whole(string $lease, Verdict $rest, array $marks): self
    {
        $others = array_filter($marks, static fn (Verdict $one): bool => !$one->equals($rest));
        return new self($lease, $rest, self::parts($others));
    }

    /**
     * These records only; the others stay leased.
     *
     * @param array<int, Verdict> $marks by index, not empty
     */
    public static function only(string $lease, array $marks): self
    {
        return new self($lease, null, self::parts($marks));
    }

    /** An `offramp.v1.Settlement`. */
    public function encode(): string
    {
        return $this->bytes ??= Wire::lengthDelimited(1, $this->lease)
            . ($this->rest === null ? '' : self::verdict($this->rest, 2))
            . implode('', array_map(self::part(...), $this->parts))
            . ($this->rest === null ? "\x30\x01" : '');
    }

    /**
     * The same in pieces that are each within the limit, for a request that would be too large.
     *
     * @return non-empty-list<self>
     */
    public function pieces(int $records, int $mostBytes): array
    {
        if (strlen($this->encode()) <= $mostBytes) {
            return [$this];
        }
        $pieces = $parts = [];
        $size = $envelope = strlen($this->lease) + 16;
        foreach ($this->spread($records) as $part) {
            $more = strlen(self::part($part));
            if ($parts !== [] && $size + $more > $mostBytes) {
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
     * Neighbours with the same verdict share one part.
     *
     * @param array<int, Verdict> $marks
     * @return list<array{int, int, Verdict}>
     */
    private static function parts(array $marks): array
    {
        ksort($marks);
        $parts = [];
        $last = -1;
        foreach ($marks as $index => $verdict) {
            if ($last >= 0 && $index === $parts[$last][0] + $parts[$last][1] && $verdict->equals($parts[$last][2])) {
                $parts[$last][1]++;
            } else {
                $parts[++$last] = [$index, 1, $verdict];
            }
        }
        return $parts;
    }

    /**
     * The parts, and what is said of the rest as parts between them.
     *
     * @return list<array{int, int, Verdict}>
     */
    private function spread(int $records): array
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

    /** @param array{int, int, Verdict} $part */
    private static function part(array $part): string
    {
        [$first, $count, $verdict] = $part;
        return Wire::lengthDelimited(5, Wire::number(1, $first) . Wire::number(2, $count) . self::verdict($verdict, 3));
    }

    /** Outcome, reason and retry_after_ms, which stand together in a settlement and in a part, from this field on. */
    private static function verdict(Verdict $verdict, int $field): string
    {
        $bytes = Wire::number($field, $verdict->outcome);
        if ($verdict->reason !== '') {
            $bytes .= Wire::lengthDelimited($field + 1, $verdict->reason);
        }
        if ($verdict->retryAfterMs !== null) {
            $bytes .= Wire::number($field + 2, $verdict->retryAfterMs, always: true);
        }
        return $bytes;
    }
}
