<?php

declare(strict_types=1);

namespace Offramp\Tests\Unit;

use Offramp\Pool;
use Offramp\Tests\Support\Logger;
use PHPUnit\Framework\TestCase;

final class PoolTest extends TestCase
{
    public function testACrashIsLoggedAsAnError(): void
    {
        $logger = new Logger(static function (string $line): void {
            if (str_contains($line, 'ended by signal 9')) {
                posix_kill((int) getmypid(), SIGTERM);
            }
        });
        $pool = new Pool(static fn () => posix_kill((int) getmypid(), SIGKILL), logger: $logger);
        self::assertSame(0, $pool->run());
        self::assertSame('info: starting 1 worker(s)', $logger->lines[0]);
        self::assertMatchesRegularExpression('/^error: worker \d+ ended by signal 9; starting another/', $logger->lines[1]);
        self::assertSame('info: all workers have ended', end($logger->lines));
    }
}
