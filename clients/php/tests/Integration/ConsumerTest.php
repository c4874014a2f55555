<?php

declare(strict_types=1);

namespace Offramp\Tests\Integration;

use Offramp\Batch;
use Offramp\Consumer;
use Offramp\Exception\Closed;
use Offramp\Exception\Drained;
use Offramp\Exception\Forked;
use Offramp\Exception\Unavailable;
use Offramp\Options;
use Offramp\Publisher;
use Offramp\SettleResult;
use Offramp\Tests\Support\Logger;
use Offramp\Tests\Support\SidecarTestCase;
use Offramp\Tests\Support\Sidecar;
use Offramp\Worker;

final class ConsumerTest extends SidecarTestCase
{
    public function testTakingWaitsAtMostForItsTimeout(): void
    {
        $consumer = $this->consumer();
        self::assertNull($consumer->take(0.05));
        $this->publish('1');
        self::assertSame('1', $this->take($consumer)[0]->value);
        self::assertTrue($consumer->isConnected());
    }

    public function testClosingReleasesTheBatchesInHand(): void
    {
        $this->publish('1');
        $consumer = $this->consumer();
        $held = $this->take($consumer);
        $consumer->close();
        self::assertFalse($consumer->isConnected());
        self::assertTrue($held->isLost());
        $this->awaitCounters(released: 1, abandoned: 0);
        $this->expectException(Closed::class);
        $consumer->take();
    }

    public function testTheBatchesOfADroppedConsumerAreAbandoned(): void
    {
        $this->publish('1');
        $consumer = $this->consumer();
        $held = $this->take($consumer);
        unset($consumer, $held);
        $this->awaitCounters(released: 0, abandoned: 1);
        $consumer = $this->consumer();
        $record = $this->take($consumer)[0];
        self::assertSame([2, true], [$record->attempt, $record->possiblyProcessed]);
    }

    public function testAFetchWhoseAnswerIsLostIsRepeatedAndNothingIsDeliveredTwice(): void
    {
        $listen = self::$sidecar->folder . '/cut';
        $command = [PHP_BINARY, dirname(__DIR__) . '/Support/cutting_proxy.php', $listen, self::$sidecar->socket];
        $proxy = proc_open($command, [1 => ['pipe', 'w']], $pipes);
        try {
            self::assertSame("ready\n", fgets($pipes[1]));
            $consumer = $this->consumer(address: $listen);
            $this->publish('1', '2');
            $first = $this->take($consumer);
            posix_kill(proc_get_status($proxy)['pid'], SIGUSR1);
            self::assertSame("ready\n", fgets($pipes[1]));
            $second = $this->take($consumer);
            self::assertSame(['2', 1], [$second[0]->value, $second[0]->attempt]);
            self::assertFalse($first->isLost());
            self::assertTrue($first->ack()->isSettled());
            self::assertTrue($second->ack()->isSettled());
            $this->awaitCounters(delivered: 2, redelivered: 0, acked: 2, abandoned: 0);
        } finally {
            proc_terminate($proxy, SIGKILL);
        }
    }

    public function testASettlementWhoseAnswerIsLostIsRepeated(): void
    {
        $listen = self::$sidecar->folder . '/cut2';
        $command = [PHP_BINARY, dirname(__DIR__) . '/Support/cutting_proxy.php', $listen, self::$sidecar->socket];
        $proxy = proc_open($command, [1 => ['pipe', 'w']], $pipes);
        try {
            self::assertSame("ready\n", fgets($pipes[1]));
            $logger = new Logger();
            $consumer = $this->consumer(address: $listen, logger: $logger);
            $this->publish('1');
            $batch = $this->take($consumer);
            posix_kill(proc_get_status($proxy)['pid'], SIGUSR1);
            self::assertSame("ready\n", fgets($pipes[1]));
            self::assertTrue($batch->ack()->isSettled());
            $this->awaitCounters(acked: 1, staleSettlements: 0, unknownSettlements: 0);
            self::assertStringContainsString("the connection to the sidecar at unix:$listen broke", $logger->lines[1]);
        } finally {
            proc_terminate($proxy, SIGKILL);
        }
    }

    public function testAChildThatEndsDoesNotEndTheSessionOfItsParent(): void
    {
        if (!extension_loaded('ffi')) {
            self::markTestSkipped('without ext-ffi a child that ends takes its parent\'s session with it');
        }
        $this->publish('1', '2');
        $consumer = $this->consumer();
        $batch = $this->take($consumer);
        $pid = pcntl_fork();
        if ($pid === 0) {
            // Like a program that does not know it is a child: all objects are destroyed.
            unset($consumer, $batch);
            gc_collect_cycles();
            posix_kill(getmypid(), SIGKILL);
        }
        pcntl_waitpid($pid, $status);
        self::assertTrue($consumer->isConnected());
        self::assertTrue($batch->ack()->isSettled());
        self::assertSame('2', $this->take($consumer)[0]->value);
        $this->awaitCounters(abandoned: 0, acked: 1);
    }

    public function testAChildCannotUseTheConsumerOfItsParent(): void
    {
        $this->publish('1', '2');
        $consumer = $this->consumer();
        $batch = $this->take($consumer);
        $pid = pcntl_fork();
        if ($pid === 0) {
            $code = 1;
            try {
                $consumer->take(1);
            } catch (Forked) {
                $code = 0;
            }
            // Destroys no objects, unlike the test above.
            pcntl_exec('/bin/sh', ['-c', "exit $code"]);
        }
        pcntl_waitpid($pid, $status);
        self::assertSame(0, pcntl_wexitstatus($status));
        self::assertTrue($batch->ack()->isSettled());
    }

    public function testAMissingSidecarIsAwaitedForTheOptionPatience(): void
    {
        $consumer = $this->consumer(address: '/no/such/socket', patience: 0.1, logger: new Logger());
        $this->expectException(Unavailable::class);
        $this->expectExceptionMessage('there is no socket at /no/such/socket: start the sidecar');
        $consumer->take();
    }

    public function testAMissingSidecarIsAwaitedForTheTimeoutOfTheCall(): void
    {
        $logger = new Logger();
        self::assertNull($this->consumer(address: '/no/such/socket', logger: $logger)->take(0.1));
        self::assertCount(1, $logger->lines);
        self::assertStringContainsString('there is no socket at /no/such/socket', $logger->lines[0]);
    }

    public function testConnectionsAndSettlementsThatDidNotCountAreLogged(): void
    {
        $logger = new Logger();
        $results = [];
        $this->publish('1');
        $slow = $this->consumer(
            lease: 0.2,
            logger: $logger,
            onResult: static function (Batch $batch, SettleResult $result) use (&$results): void {
                $results[] = $result->status->name;
            },
        );
        $held = $this->take($slow);
        $fast = $this->consumer();
        $this->take($fast)->ack();
        $held->ack();
        self::assertSame(['Stale'], $results);
        self::assertStringStartsWith("info: $this->subscription: connected to the sidecar", $logger->lines[0]);
        self::assertStringStartsWith("warning: $this->subscription: the sidecar did not count", $logger->lines[1]);
    }

    public function testDrainingEndsTheIterationAndTheLastBatchCanStillBeSettled(): void
    {
        $this->publish('1', '2');
        $consumer = $this->consumer();
        $seen = 0;
        foreach ($consumer as $batch) {
            $consumer->drain();
            self::assertTrue($batch->ack()->isSettled());
            $seen++;
        }
        self::assertSame(1, $seen);
    }

    public function testASignalEndsAWaitAtOnceAndItsHandlerIsRemovedAfterwards(): void
    {
        $consumer = $this->consumer();
        self::assertNull($consumer->take(0.01));
        $me = getmypid();
        $pid = pcntl_fork();
        if ($pid === 0) {
            usleep(300_000);
            posix_kill($me, SIGTERM);
            posix_kill(getmypid(), SIGKILL);
        }
        try {
            // Without the signal it would wait forever.
            $consumer->take();
            self::fail('it returned');
        } catch (Drained $error) {
            self::assertStringContainsString("the consumer of $this->subscription drains", $error->getMessage());
        }
        pcntl_waitpid($pid, $status);
        $consumer->close();
        self::assertSame(SIG_DFL, pcntl_signal_get_handler(SIGTERM));
    }

    public function testAWorkerStopsAfterItsMostBatches(): void
    {
        $this->publish('1', '2', '3');
        $seen = [];
        $handler = static function (Batch $batch) use (&$seen): void {
            $seen[] = $batch[0]->value;
        };
        (new Worker($this->subscription, $handler, maxBatches: 2))->run();
        self::assertSame(['1', '2'], $seen);
        $this->awaitCounters(acked: 2, abandoned: 0);
    }

    public function testAWorkerStopsWhenItUsesTooMuchMemory(): void
    {
        $this->publish('1', '2', '3');
        $kept = [];
        $handler = static function (Batch $batch) use (&$kept): void {
            $kept[] = str_repeat('x', 32 << 20);
        };
        (new Worker($this->subscription, $handler, memoryLimit: memory_get_usage(true) + (48 << 20)))->run();
        self::assertCount(2, $kept);
        $this->awaitCounters(acked: 2);
    }

    public function testABatchInHandCanBeSettledWhileTheSidecarStopsAndNoMoreAreDelivered(): void
    {
        $sidecar = (new Sidecar(['orders' => ['batch' => ['records' => 1]]], drain: '20s'))->start();
        try {
            (new Publisher(broker: 'local', address: $sidecar->socket))->publish('orders', '1');
            $consumer = new Consumer('orders', new Options(address: $sidecar->socket, logger: new Logger()));
            $held = $this->take($consumer);
            $sidecar->signal(SIGTERM);
            // Nothing is delivered, whether it is stopping already or not.
            self::assertNull($consumer->take(1.0));
            self::assertFalse($held->isLost());
            self::assertTrue($held->ack()->isSettled());
        } finally {
            $sidecar->stop();
        }
    }

    public function testPrefetchedBatchesAreHandledInOrderAndSettledTogether(): void
    {
        $this->publishAndBuffer('1', '2', '3', '4', '5');
        $seen = [];
        $handler = static function (Batch $batch) use (&$seen): void {
            $seen[] = $batch[0]->value;
        };
        (new Worker($this->subscription, $handler, maxBatches: 4, prefetch: 2))->run();
        self::assertSame(['1', '2', '3', '4'], $seen);
        // The fifth was delivered with the fourth, and released.
        $this->awaitCounters(acked: 4, released: 1, abandoned: 0);
    }

    public function testAPrefetchedBatchThatWaitedTooLongIsReleased(): void
    {
        $this->publishAndBuffer('1', '2');
        $seen = [];
        $handler = static function (Batch $batch) use (&$seen): void {
            if ($seen === []) {
                usleep(1_100_000);
            }
            $seen[] = [$batch[0]->value, $batch[0]->attempt];
        };
        (new Worker($this->subscription, $handler, maxBatches: 2, prefetch: 3))->run();
        self::assertSame([['1', 1], ['2', 1]], $seen);
        $this->awaitCounters(acked: 2, released: 1);
    }

    public function testASettlementInAHandlerIsNotRepeatedByTheWorker(): void
    {
        $this->publish('1');
        $worker = null;
        $handler = static function (Batch $batch) use (&$worker): void {
            self::assertTrue($batch->reject('by hand')->isSettled());
            $worker->drain();
            throw new \RuntimeException('too late to matter');
        };
        $worker = new Worker($this->subscription, $handler, new Options(logger: new Logger()));
        $worker->run();
        $this->awaitCounters(rejected: 1, nacked: 0, acked: 0);
    }
}
