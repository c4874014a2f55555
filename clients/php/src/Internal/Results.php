<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\SettleResult;
use Offramp\SettleStatus;
use Offramp\V1\SettleResult as Message;

/**
 * Reads what the sidecar answered to settlements.
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
        return self::read($message);
    }

    public static function read(Message $message): SettleResult
    {
        $stale = [];
        foreach ($message->getStale() as $range) {
            for ($index = $range->getFirst(); $index < $range->getFirst() + $range->getCount(); $index++) {
                $stale[] = $index;
            }
        }
        $status = SettleStatus::tryFrom($message->getStatus()) ?? SettleStatus::Unanswered;
        return new SettleResult($status, $stale, $message->getDetail());
    }

    public static function missing(string $why = 'the sidecar did not answer it'): SettleResult
    {
        return new SettleResult(SettleStatus::Unanswered, [], $why);
    }

    /**
     * One answer for a settlement that travelled in pieces: the worst.
     *
     * @param list<SettleResult> $results
     */
    public static function merge(array $results): SettleResult
    {
        if (count($results) === 1) {
            return $results[0];
        }
        $worst = self::missing();
        $stale = [];
        foreach ($results as $place => $result) {
            $stale = [...$stale, ...$result->stale];
            $worse = $worst->isSettled() || (!$result->isSettled() && $result->status->value > $worst->status->value);
            if ($place === 0 || $worse) {
                $worst = $result;
            }
        }
        return new SettleResult($worst->status, $stale, $worst->detail);
    }
}
