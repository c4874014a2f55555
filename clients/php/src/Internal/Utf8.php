<?php

declare(strict_types=1);

namespace Offramp\Internal;

/**
 * Makes text valid for protobuf, without ext-mbstring.
 *
 * @internal
 */
final class Utf8
{
    private const CHARACTER = '[\x00-\x7F]|[\xC2-\xDF][\x80-\xBF]|\xE0[\xA0-\xBF][\x80-\xBF]'
        . '|[\xE1-\xEC\xEE\xEF][\x80-\xBF]{2}|\xED[\x80-\x9F][\x80-\xBF]|\xF0[\x90-\xBF][\x80-\xBF]{2}'
        . '|[\xF1-\xF3][\x80-\xBF]{3}|\xF4[\x80-\x8F][\x80-\xBF]{2}';

    /** At most this many bytes of a text, with a question mark for each byte that is not UTF-8. */
    public static function clean(string $text, int $most): string
    {
        // Cut first, since a reason may be pages long; a character has up to four bytes.
        $text = substr($text, 0, $most + 4);
        if (preg_match('//u', $text) !== 1) {
            $text = (string) preg_replace('/(?:' . self::CHARACTER . ')(*SKIP)(*FAIL)|./s', '?', $text);
        }
        if (strlen($text) <= $most) {
            return $text;
        }
        $cut = substr($text, 0, $most);
        return preg_match('//u', $cut) === 1 ? $cut : (string) preg_replace('/[\xC0-\xFF][\x80-\xBF]*$/D', '', $cut);
    }
}
