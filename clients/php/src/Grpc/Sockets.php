<?php

declare(strict_types=1);

namespace Offramp\Grpc;

/**
 * Keeps sockets from the children of this process.
 *
 * A program that a handler starts (`exec`, `proc_open`) inherits the sockets of curl, and a session whose process was
 * killed would live on with it. PHP cannot mark a socket as not to be inherited, but C can, and ext-ffi calls C.
 * Where that is missing (or not allowed by `ffi.enable`), or where there is no /proc, all of this does nothing.
 *
 * @internal
 */
final class Sockets
{
    private const F_SETFD = 2;
    private const FD_CLOEXEC = 1;

    private static \FFI|false|null $c = null;

    /** @return list<int> the sockets of this process */
    public static function open(): array
    {
        if (self::c() === false) {
            return [];
        }
        $found = [];
        foreach (@scandir('/proc/self/fd') ?: [] as $name) {
            if (ctype_digit($name) && str_starts_with((string) @readlink("/proc/self/fd/$name"), 'socket:')) {
                $found[] = (int) $name;
            }
        }
        return $found;
    }

    /**
     * Keep all sockets from children that were not there before.
     *
     * @param list<int> $before
     * @return list<int> those sockets
     */
    public static function guard(array $before): array
    {
        $c = self::c();
        $made = array_values(array_diff(self::open(), $before));
        if ($c !== false) {
            foreach ($made as $socket) {
                $c->fcntl($socket, self::F_SETFD, self::FD_CLOEXEC);
            }
        }
        return $made;
    }

    /**
     * In a child that was forked: let go of its parent's sockets without a word to the other side.
     *
     * @param list<int> $sockets
     */
    public static function close(array $sockets): void
    {
        $c = self::c();
        if ($c !== false) {
            foreach ($sockets as $socket) {
                $c->close($socket);
            }
        }
    }

    private static function c(): \FFI|false
    {
        if (self::$c === null) {
            self::$c = false;
            if (PHP_OS_FAMILY === 'Linux' && extension_loaded('ffi')) {
                try {
                    self::$c = \FFI::cdef('int fcntl(int fd, int cmd, ...); int close(int fd);');
                } catch (\Throwable) {
                    // Switched off by ffi.enable.
                }
            }
        }
        return self::$c;
    }
}
