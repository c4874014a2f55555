<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\SettleResult;
use Offramp\SettleStatus;
use Offramp\V1\ErrorReason;
use Offramp\V1\SettleResult as Message;

/**
 * Reads the sidecar's results of settlements.
 *
 * @internal
 */
final class Results
{
    public static function parse(string $bytes): SettleResult
    {
        static $settled = new SettleResult(SettleStatus::Settled);
        if (Wire::plainStatus($bytes) === SettleStatus::Settled->value) {
            return $settled;
        }
        $message = new Message();
        $message->mergeFromString($bytes);
        return self::fromMessage($message);
    }

    public static function fromMessage(Message $message): SettleResult
    {
        $stale = [];
        foreach ($message->getStale() as $range) {
            for ($index = $range->getFirst(); $index < $range->getFirst() + $range->getCount(); $index++) {
                $stale[] = $index;
            }
        }
        $status = SettleStatus::tryFrom($message->getStatus()) ?? SettleStatus::Unanswered;
        return new SettleResult($status, $stale, $message->getDetail(), self::reason($message->getReason()));
    }

    public static function unanswered(string $why = 'the sidecar did not answer it'): SettleResult
    {
        return new SettleResult(SettleStatus::Unanswered, [], $why);
    }

    /**
     * One result for a settlement that was sent in pieces: the worst, with all stale indexes.
     *
     * @param list<SettleResult> $results
     */
    public static function merge(array $results): SettleResult
    {
        if (count($results) === 1) {
            return $results[0];
        }
        $worst = null;
        $stale = [];
        foreach ($results as $result) {
            $stale = [...$stale, ...$result->stale];
            if (
                $worst === null || $worst->isSettled()
                || (!$result->isSettled() && $result->status->value > $worst->status->value)
            ) {
                $worst = $result;
            }
        }
        $worst ??= self::unanswered();
        return new SettleResult($worst->status, $stale, $worst->detail, $worst->reason);
    }

    /** Without its prefix; empty for none; the number of one that this version does not know. */
    private static function reason(int $number): string
    {
        try {
            return $number === 0 ? '' : substr(ErrorReason::name($number), strlen('ERROR_REASON_'));
        } catch (\UnexpectedValueException) {
            return (string) $number;
        }
    }
}
