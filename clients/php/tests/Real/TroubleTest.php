<?php

declare(strict_types=1);

namespace Offramp\Tests\Real;

use Offramp\Batch;
use Offramp\Exception\Unavailable;
use Offramp\Options;
use Offramp\Tests\Kit\Logger;
use Offramp\Tests\Kit\RealTestCase;
use Offramp\Tests\Kit\Sidecar;
use Offramp\Worker;

/** A sidecar that answers with a status that may pass. */
final class TroubleTest extends RealTestCase
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

    public function testAWorkerOutlivesWhatMayPass(): void
    {
        $address = $this->failing('RESOURCE_EXHAUSTED', 'INTERNAL', 'UNKNOWN');
        $this->publish('1', '2');
        $logger = new Logger();
        $handler = static function (Batch $batch): void {
        };
        (new Worker($this->subscription, $handler, new Options($address, logger: $logger), maxBatches: 2))->run();
        $this->counts(acked: 2, redelivered: 0, abandoned: 0);
        $complaints = preg_grep('/^warning/', $logger->lines);
        self::assertCount(1, $complaints);
        self::assertStringContainsString('as the test says', (string) current($complaints));
    }

    public function testWhatIsInHandStaysThereMeanwhile(): void
    {
        $this->publish('1', '2');
        $consumer = $this->consumer(address: $this->failing('OK', 'INTERNAL'), logger: new Logger());
        $held = $this->take($consumer);
        $other = $this->take($consumer);
        self::assertFalse($held->isLost());
        self::assertTrue($held->ack()->isSettled());
        self::assertTrue($other->ack()->isSettled());
    }

    public function testWhatDoesNotPassIsWaitedForNoLongerThanPatienceLasts(): void
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

    public function testWhatDoesNotPassIsWaitedForNoLongerThanTheCallLasts(): void
    {
        $consumer = $this->consumer(
            address: $this->failing(...array_fill(0, 1_000, 'INTERNAL')),
            logger: new Logger(),
        );
        self::assertNull($consumer->take(0.1));
        self::assertTrue($consumer->isConnected());
    }

    private function failing(string ...$statuses): string
    {
        $listen = self::$sidecar->folder . '/' . substr(md5($this->subscription), 0, 8);
        $command = [Sidecar::python(), '-m', 'tests.clients.php.failing', $listen, self::$sidecar->socket, ...$statuses];
        $this->proxy = proc_open($command, [1 => ['pipe', 'w']], $pipes, Sidecar::ROOT);
        self::assertSame("ready\n", fgets($pipes[1]));
        return $listen;
    }
}
