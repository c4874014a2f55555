<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\V1\Part;
use Offramp\V1\Settlement;

/**
 * From verdicts to the settlements that travel. Neighbours with the same verdict share one part.
 *
 * @internal
 */
final class Settlements
{
    /**
     * All records of a batch: `rest` for those that were not marked.
     *
     * @param array<int, Verdict> $marks by index
     */
    public static function whole(string $lease, Verdict $rest, array $marks): Settlement
    {
        $settlement = new Settlement();
        $settlement->setLease($lease);
        $settlement->setOutcome($rest->outcome);
        if ($rest->reason !== '') {
            $settlement->setReason($rest->reason);
        }
        if ($rest->retryAfterMs !== null) {
            $settlement->setRetryAfterMs($rest->retryAfterMs);
        }
        if ($marks !== []) {
            $settlement->setParts(self::parts(array_filter($marks, static fn (Verdict $one) => !$one->equals($rest))));
        }
        return $settlement;
    }

    /**
     * These records only; the others stay leased.
     *
     * @param array<int, Verdict> $marks by index, not empty
     */
    public static function only(string $lease, array $marks): Settlement
    {
        return self::partial($lease, self::parts($marks));
    }

    /**
     * The same in pieces that are each within the limit, for a request that would be too large.
     *
     * @return non-empty-list<Settlement>
     */
    public static function pieces(Settlement $settlement, int $records, int $mostBytes): array
    {
        if ($settlement->byteSize() <= $mostBytes) {
            return [$settlement];
        }
        $pieces = [];
        $parts = [];
        $size = 0;
        foreach (self::spread($settlement, $records) as $part) {
            $more = $part->byteSize() + 8;
            if ($parts !== [] && $size + $more > $mostBytes) {
                $pieces[] = self::partial($settlement->getLease(), $parts);
                $parts = [];
                $size = 0;
            }
            $parts[] = $part;
            $size += $more;
        }
        $pieces[] = self::partial($settlement->getLease(), $parts);
        return $pieces;
    }

    /** @param list<Part> $parts */
    private static function partial(string $lease, array $parts): Settlement
    {
        $settlement = new Settlement();
        $settlement->setLease($lease);
        $settlement->setParts($parts);
        $settlement->setPartial(true);
        return $settlement;
    }

    /**
     * @param array<int, Verdict> $marks
     * @return list<Part>
     */
    private static function parts(array $marks): array
    {
        ksort($marks);
        $parts = [];
        $first = $count = 0;
        $current = null;
        foreach ($marks as $index => $verdict) {
            if ($current !== null && $index === $first + $count && $verdict->equals($current)) {
                $count++;
                continue;
            }
            if ($current !== null) {
                $parts[] = self::part($first, $count, $current);
            }
            [$first, $count, $current] = [$index, 1, $verdict];
        }
        if ($current !== null) {
            $parts[] = self::part($first, $count, $current);
        }
        return $parts;
    }

    private static function part(int $first, int $count, Verdict $verdict): Part
    {
        $part = new Part();
        $part->setFirst($first);
        $part->setCount($count);
        $part->setOutcome($verdict->outcome);
        $part->setReason($verdict->reason);
        if ($verdict->retryAfterMs !== null) {
            $part->setRetryAfterMs($verdict->retryAfterMs);
        }
        return $part;
    }

    /**
     * The parts of a settlement, and its own outcome as parts between them.
     *
     * @return iterable<Part>
     */
    private static function spread(Settlement $settlement, int $records): iterable
    {
        $at = 0;
        $between = static function (int $until) use (&$at, $settlement): iterable {
            if ($until > $at && !$settlement->getPartial()) {
                $part = new Part();
                $part->setFirst($at);
                $part->setCount($until - $at);
                $part->setOutcome($settlement->getOutcome());
                $part->setReason($settlement->getReason());
                if ($settlement->hasRetryAfterMs()) {
                    $part->setRetryAfterMs($settlement->getRetryAfterMs());
                }
                yield $part;
            }
        };
        foreach ($settlement->getParts() as $part) {
            yield from $between($part->getFirst());
            yield $part;
            $at = $part->getFirst() + $part->getCount();
        }
        yield from $between($records);
    }
}
