<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\Exception\MissingExtension;

/**
 * Checks what this package needs of PHP, and names what is missing.
 *
 * @internal
 */
final class Requirements
{
    /** @throws MissingExtension */
    public static function check(): void
    {
        static $checked = false;
        if ($checked) {
            return;
        }
        if (!extension_loaded('curl')) {
            throw new MissingExtension(
                'PHP has no curl extension, by which Offramp talks to its sidecar: install it (Debian: apt-get install '
                . 'php-curl; Docker: it is part of the official php images)'
            );
        }
        if ((curl_version()['features'] & CURL_VERSION_HTTP2) === 0) {
            throw new MissingExtension(
                'the libcurl of this PHP speaks no HTTP/2, which gRPC needs: use one that was built with nghttp2 '
                . '(those of Debian, Alpine and the official php images are)'
            );
        }
        if (PHP_INT_SIZE < 8) {
            throw new MissingExtension('positions of records need a 64-bit PHP, and this one has 32 bits');
        }
        if (!class_exists(\Google\Protobuf\Internal\Message::class)) {
            throw new MissingExtension(
                'the protobuf runtime is missing: composer require google/protobuf (Debian: apt-get install '
                . 'php-google-protobuf)'
            );
        }
        $checked = true;
    }
}
