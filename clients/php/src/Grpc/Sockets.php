<?php

declare(strict_types=1);

namespace Offramp\Grpc;

/**
 * Keeps child processes from inheriting sockets.
 *
 * A program that a handler starts (`exec`, `proc_open`) inherits curl's sockets, and would keep the session of a killed
 * process alive. PHP cannot set close-on-exec on a socket, but C can, through ext-ffi. Without ext-ffi (or if
 * `ffi.enable` forbids it) or without /proc, this class does nothing.
 *
 * @internal
 */
final class Sockets
{
    private const F_SETFD = 2;
    private const FD_CLOEXEC = 1;

    private static \FFI|false|null $c = null;

    /** @return list<int> the sockets of this process */
    public static function all(): array
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
     * Sets close-on-exec on all sockets that did not exist before.
     *
     * @param list<int> $before
     * @return list<int> the new sockets
     */
    public static function closeOnExec(array $before): array
    {
        $c = self::c();
        $new = array_values(array_diff(self::all(), $before));
        if ($c !== false) {
            foreach ($new as $socket) {
                $c->fcntl($socket, self::F_SETFD, self::FD_CLOEXEC);
            }
        }
        return $new;
    }

    /**
     * Closes a parent's sockets in a forked child, without sending anything to the other side.
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
                    // Forbidden by ffi.enable.
                }
            }
        }
        return self::$c;
    }
}
