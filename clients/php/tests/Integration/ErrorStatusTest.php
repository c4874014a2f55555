<?php

declare(strict_types=1);

namespace Offramp\Tests\Integration;

use Offramp\Batch;
use Offramp\Exception\Forbidden;
use Offramp\Exception\Unavailable;
use Offramp\Options;
use Offramp\Tests\Support\Logger;
use Offramp\Tests\Support\SidecarTestCase;
use Offramp\Tests\Support\Sidecar;
use Offramp\Worker;

/** A sidecar that answers with transient error statuses. */
final class ErrorStatusTest extends SidecarTestCase
{
    /** @var resource|null */
    private $proxy = null;

    protected function tearDown(): void
    {
        if ($this->proxy !== null) {
            proc_terminate($this->proxy, SIGKILL);
            proc_close($this->proxy);
        }
    }

    public function testAWorkerOutlivesTransientErrors(): void
    {
        $address = $this->failing('RESOURCE_EXHAUSTED', 'INTERNAL', 'UNKNOWN');
        $this->publish('1', '2');
        $logger = new Logger();
        $handler = static function (Batch $batch): void {
        };
        (new Worker($this->subscription, $handler, new Options($address, logger: $logger), maxBatches: 2))->run();
        $this->awaitCounters(acked: 2, redelivered: 0, abandoned: 0);
        $warnings = preg_grep('/^warning/', $logger->lines);
        self::assertCount(1, $warnings);
        self::assertStringContainsString('as the test says', (string) current($warnings));
    }

    public function testBatchesInHandStayLeasedMeanwhile(): void
    {
        $this->publish('1', '2');
        $consumer = $this->consumer(address: $this->failing('OK', 'INTERNAL'), logger: new Logger());
        $held = $this->take($consumer);
        $other = $this->take($consumer);
        self::assertFalse($held->isLost());
        self::assertTrue($held->ack()->isSettled());
        self::assertTrue($other->ack()->isSettled());
    }

    public function testALastingErrorIsRetriedForTheOptionPatience(): void
    {
        $consumer = $this->consumer(
            address: $this->failing(...array_fill(0, 1_000, 'INTERNAL')),
            patience: 0.1,
            logger: new Logger(),
        );
        $this->expectException(Unavailable::class);
        $this->expectExceptionMessage('as the test says');
        $consumer->take();
    }

    public function testALastingErrorIsRetriedForTheTimeoutOfTheCall(): void
    {
        $consumer = $this->consumer(
            address: $this->failing(...array_fill(0, 1_000, 'INTERNAL')),
            logger: new Logger(),
        );
        self::assertNull($consumer->take(0.1));
        self::assertTrue($consumer->isConnected());
    }

    public function testATokenThatIsRefusedWhileItsFileIsEmptyIsRetried(): void
    {
        $file = self::$sidecar->folder . '/token';
        file_put_contents($file, 'secret');
        $this->publish('1', '2');
        $logger = new Logger();
        $handler = static fn (Batch $batch) => file_put_contents($file, '');
        $options = new Options($this->failing('OK', 'UNAUTHENTICATED'), tokenFile: $file, logger: $logger);
        (new Worker($this->subscription, $handler, $options, maxBatches: 2))->run();
        $this->awaitCounters(acked: 2, redelivered: 0, abandoned: 0);
        self::assertCount(1, preg_grep('/refused the token that it had before/', $logger->lines));
    }

    public function testATokenThatIsRefusedAndCurrentIsNotRetried(): void
    {
        $file = self::$sidecar->folder . '/token';
        file_put_contents($file, 'secret');
        $consumer = $this->consumer(address: $this->failing('UNAUTHENTICATED'), tokenFile: $file);
        $this->expectException(Forbidden::class);
        $consumer->take();
    }

    public function testASidecarWithALastingErrorDoesNotHoldUpAStoppingWorker(): void
    {
        $handler = static function (Batch $batch): void {
        };
        $options = new Options($this->failing('ABORTED+'), signals: false, logger: new Logger());
        $worker = new Worker($this->subscription, $handler, $options);
        $before = pcntl_async_signals(true);
        $toldAt = 0.0;
        pcntl_signal(SIGALRM, static function () use ($worker, &$toldAt): void {
            $toldAt = microtime(true);
            $worker->drain();
        });
        pcntl_alarm(1);
        try {
            $worker->run();
        } finally {
            pcntl_signal(SIGALRM, SIG_DFL);
            pcntl_async_signals($before);
        }
        self::assertLessThan(30.0, microtime(true) - $toldAt);
    }

    private function failing(string ...$statuses): string
    {
        $listen = self::$sidecar->folder . '/' . substr(md5($this->subscription), 0, 8);
        $command = [Sidecar::python(), '-m', 'tests.clients.php.failing_proxy', $listen, self::$sidecar->socket, ...$statuses];
        $this->proxy = proc_open($command, [1 => ['pipe', 'w']], $pipes, Sidecar::ROOT);
        self::assertSame("ready\n", fgets($pipes[1]));
        return $listen;
    }
}
