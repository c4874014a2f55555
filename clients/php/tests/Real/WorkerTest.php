<?php

declare(strict_types=1);

namespace Offramp\Tests\Real;

use Offramp\Batch;
use Offramp\Options;
use Offramp\Tests\Kit\Logger;
use Offramp\Tests\Kit\RealTestCase;
use Offramp\Worker;

final class WorkerTest extends RealTestCase
{
    public function testABatchWhoseHandlerDidNotRunIsNotAcked(): void
    {
        $this->publish('1');
        $logger = new Logger();
        $handler = static function (Batch $batch): \Generator {
            yield $batch;
        };
        (new Worker($this->subscription, $handler, new Options(logger: $logger), maxBatches: 1))->run();
        $this->counts(nacked: 1, acked: 0);
        self::assertStringContainsString('a handler must not yield', $logger->lines[1]);
    }
}
