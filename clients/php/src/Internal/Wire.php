<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\Exception\ProtocolBroken;
use Offramp\Header;

/**
 * Decodes batches and records, and encodes what is sent with every batch.
 *
 * The protobuf runtime in pure PHP takes about ten times as long, which would be most of the time of a fast handler.
 * Everything else uses generated code. The tests compare both.
 *
 * @internal
 */
final class Wire
{
    /**
     * The fields of a FetchResponse: the bytes of its batches, results and notices.
     *
     * @return array{list<string>, list<string>, list<string>}
     */
    public static function fetchResponse(string $bytes): array
    {
        $fields = [[], [], []];
        $at = 0;
        $end = strlen($bytes);
        while ($at < $end) {
            $tag = self::varint($bytes, $at);
            if ($tag === 0x0a || $tag === 0x12 || $tag === 0x1a) {
                $size = self::varint($bytes, $at);
                $fields[($tag >> 3) - 1][] = substr($bytes, $at, $size);
                $at += $size;
            } else {
                $at = self::skip($bytes, $at, $tag);
            }
        }
        return $fields;
    }

    /**
     * A Batch whose records are still encoded.
     *
     * @return array{lease: string, topic: string, topicId: string, lanes: list<int>, records: list<string>, leaseForMs: int,
     *     redeliveries: list<array{int, int, int, bool}>} redeliveries: first, count, attempt, possibly processed
     */
    public static function batch(string $bytes): array
    {
        $lease = $topic = $topicId = '';
        $lanes = $records = $redeliveries = [];
        $leaseForMs = 0;
        $at = 0;
        $end = strlen($bytes);
        while ($at < $end) {
            $tag = ord($bytes[$at++]);
            if ($tag === 0x22) {
                $size = ord($bytes[$at++]);
                if ($size > 127) {
                    $at--;
                    $size = self::varint($bytes, $at);
                }
                $records[] = substr($bytes, $at, $size);
                $at += $size;
                continue;
            }
            if ($tag > 127) {
                $at--;
                $tag = self::varint($bytes, $at);
            }
            switch ($tag) {
                case 0x0a:
                    $lease = self::bytes($bytes, $at);
                    break;
                case 0x12:
                    $topic = self::bytes($bytes, $at);
                    break;
                case 0x18:
                    $lanes[] = self::varint($bytes, $at);
                    break;
                case 0x1a:
                    $until = self::varint($bytes, $at);
                    $until += $at;
                    while ($at < $until) {
                        $lanes[] = self::varint($bytes, $at);
                    }
                    break;
                case 0x2a:
                    $redeliveries[] = self::redelivery(self::bytes($bytes, $at));
                    break;
                case 0x30:
                    $leaseForMs = self::varint($bytes, $at);
                    break;
                case 0x42:
                    $topicId = self::bytes($bytes, $at);
                    break;
                default:
                    $at = self::skip($bytes, $at, $tag);
            }
        }
        return [
            'lease' => $lease,
            'topic' => $topic,
            'topicId' => $topicId,
            'lanes' => $lanes,
            'records' => $records,
            'leaseForMs' => $leaseForMs,
            'redeliveries' => $redeliveries,
        ];
    }

    /**
     * The fields of a Record: key, value, headers, lane, position, ref, timestamp.
     *
     * @return array{string|null, string|null, list<Header>, int, int, string, int}
     */
    public static function record(string $bytes): array
    {
        $key = $value = null;
        $headers = [];
        $lane = $position = $timestampMs = 0;
        $ref = '';
        $at = 0;
        $end = strlen($bytes);
        while ($at < $end) {
            $tag = ord($bytes[$at++]);
            switch ($tag) {
                case 0x0a:
                    $key = self::bytes($bytes, $at);
                    break;
                case 0x12:
                    $value = self::bytes($bytes, $at);
                    break;
                case 0x1a:
                    $headers[] = self::header(self::bytes($bytes, $at));
                    break;
                case 0x20:
                    $lane = self::varint($bytes, $at);
                    break;
                case 0x28:
                    $position = self::varint($bytes, $at);
                    break;
                case 0x32:
                    $ref = self::bytes($bytes, $at);
                    break;
                case 0x38:
                    $timestampMs = self::varint($bytes, $at);
                    break;
                default:
                    $at--;
                    $tag = self::varint($bytes, $at);
                    $at = self::skip($bytes, $at, $tag);
            }
        }
        return [$key, $value, $headers, $lane, $position, $ref, $timestampMs];
    }

    /**
     * A FetchRequest of a session.
     *
     * @param list<string> $settlements
     */
    public static function fetchRequest(
        string $session,
        int $seq,
        array $settlements,
        int $batches,
        int $waitMs,
    ): string {
        $bytes = self::lengthDelimited(2, $session) . self::number(3, $seq);
        foreach ($settlements as $settlement) {
            $bytes .= self::lengthDelimited(4, $settlement);
        }
        return $bytes . self::lengthDelimited(5, self::number(1, $batches)) . self::number(6, $waitMs);
    }

    /** A SettleRequest with one settlement. */
    public static function settleRequest(string $settlement): string
    {
        return self::lengthDelimited(1, $settlement);
    }

    /** The status of a SettleResult that has only lease and status; null if it has more. */
    public static function plainStatus(string $bytes): ?int
    {
        $at = 0;
        $end = strlen($bytes);
        $status = 0;
        while ($at < $end) {
            $tag = self::varint($bytes, $at);
            if ($tag === 0x0a) {
                self::bytes($bytes, $at);
            } elseif ($tag === 0x10) {
                $status = self::varint($bytes, $at);
            } else {
                return null;
            }
        }
        return $status;
    }

    /** A field with bytes. */
    public static function lengthDelimited(int $field, string $bytes): string
    {
        return chr($field << 3 | 2) . self::encodeVarint(strlen($bytes)) . $bytes;
    }

    /** A field with a number of 0 or more; 0 is the default and is left out, unless `always`. */
    public static function number(int $field, int $number, bool $always = false): string
    {
        return $number === 0 && !$always ? '' : chr($field << 3) . self::encodeVarint($number);
    }

    private static function encodeVarint(int $number): string
    {
        $bytes = '';
        while ($number > 127) {
            $bytes .= chr($number & 0x7f | 0x80);
            $number >>= 7;
        }
        return $bytes . chr($number);
    }

    private static function header(string $bytes): Header
    {
        $name = '';
        $value = null;
        $at = 0;
        $end = strlen($bytes);
        while ($at < $end) {
            $tag = self::varint($bytes, $at);
            if ($tag === 0x0a) {
                $name = self::bytes($bytes, $at);
            } elseif ($tag === 0x12) {
                $value = self::bytes($bytes, $at);
            } else {
                $at = self::skip($bytes, $at, $tag);
            }
        }
        return new Header($name, $value);
    }

    /** @return array{int, int, int, bool} */
    private static function redelivery(string $bytes): array
    {
        $fields = [1 => 0, 2 => 0, 3 => 0, 4 => 0];
        $at = 0;
        $end = strlen($bytes);
        while ($at < $end) {
            $tag = self::varint($bytes, $at);
            if (($tag & 7) === 0) {
                $fields[$tag >> 3] = self::varint($bytes, $at);
            } else {
                $at = self::skip($bytes, $at, $tag);
            }
        }
        return [$fields[1], $fields[2], max($fields[3], 1), $fields[4] !== 0];
    }

    private static function bytes(string $bytes, int &$at): string
    {
        $size = ord($bytes[$at++]);
        if ($size > 127) {
            $at--;
            $size = self::varint($bytes, $at);
        }
        $at += $size;
        return substr($bytes, $at - $size, $size);
    }

    private static function varint(string $bytes, int &$at): int
    {
        $byte = ord($bytes[$at++]);
        $number = $byte & 0x7f;
        for ($shift = 7; $byte > 127; $shift += 7) {
            $byte = ord($bytes[$at++]);
            $number |= ($byte & 0x7f) << $shift;
        }
        return $number;
    }

    /** Skips a field that this version does not know. Returns the offset behind it. */
    private static function skip(string $bytes, int $at, int $tag): int
    {
        switch ($tag & 7) {
            case 0:
                self::varint($bytes, $at);
                return $at;
            case 1:
                return $at + 8;
            case 2:
                $size = self::varint($bytes, $at);
                return $at + $size;
            case 5:
                return $at + 4;
            default:
                throw new ProtocolBroken("the sidecar sent a field with tag $tag, whose wire type is unknown");
        }
    }
}
