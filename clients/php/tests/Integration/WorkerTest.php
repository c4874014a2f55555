<?php

declare(strict_types=1);

namespace Offramp\Tests\Integration;

use Offramp\Batch;
use Offramp\Options;
use Offramp\Tests\Support\Logger;
use Offramp\Tests\Support\SidecarTestCase;
use Offramp\Worker;

final class WorkerTest extends SidecarTestCase
{
    public function testABatchWhoseHandlerDidNotRunIsNotAcked(): void
    {
        $this->publish('1');
        $logger = new Logger();
        $handler = static function (Batch $batch): \Generator {
            yield $batch;
        };
        (new Worker($this->subscription, $handler, new Options(logger: $logger), maxBatches: 1))->run();
        $this->awaitCounters(nacked: 1, acked: 0);
        self::assertStringContainsString('a handler must not yield', $logger->lines[1]);
    }

    public function testBatchesAreSettledWhileTheTokenFileIsEmpty(): void
    {
        $file = self::$sidecar->folder . '/token';
        file_put_contents($file, 'secret');
        $this->publish('1', '2', '3');
        $logger = new Logger();
        $seen = [];
        $handler = static function (Batch $batch) use ($file, &$seen): void {
            file_put_contents($file, '');
            $seen[] = $batch[0]->value;
        };
        $options = new Options(tokenFile: $file, logger: $logger);
        (new Worker($this->subscription, $handler, $options, maxBatches: 3))->run();
        $this->awaitCounters(acked: 3, abandoned: 0, redelivered: 0);
        self::assertSame(['1', '2', '3'], $seen);
        self::assertCount(1, preg_grep('/^warning: tokenFile/', $logger->lines));
    }
}
