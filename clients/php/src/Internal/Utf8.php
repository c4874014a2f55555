<?php

declare(strict_types=1);

namespace Offramp\Internal;

/**
 * Text that protobuf takes, without ext-mbstring.
 *
 * @internal
 */
final class Utf8
{
    private const CHARACTER = '[\x00-\x7F]|[\xC2-\xDF][\x80-\xBF]|\xE0[\xA0-\xBF][\x80-\xBF]'
        . '|[\xE1-\xEC\xEE\xEF][\x80-\xBF]{2}|\xED[\x80-\x9F][\x80-\xBF]|\xF0[\x90-\xBF][\x80-\xBF]{2}'
        . '|[\xF1-\xF3][\x80-\xBF]{3}|\xF4[\x80-\x8F][\x80-\xBF]{2}';

    /** At most so many bytes of a text, with a question mark for each byte that is no UTF-8. */
    public static function clean(string $text, int $most): string
    {
        // Reasons may hold whole pages; one character may have four bytes.
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
