<?php

declare(strict_types=1);

namespace Offramp\Tests\Integration;

use Offramp\Batch;
use Offramp\Exception\Drained;
use Offramp\Options;
use Offramp\Tests\Support\SidecarTestCase;
use Offramp\Worker;

/** What a signal does to a process with several consumers, or with a handler of its own. */
final class SignalsTest extends SidecarTestCase
{
    /** @var list<string> */
    private array $seen = [];

    protected function tearDown(): void
    {
        pcntl_signal(SIGTERM, SIG_DFL);
    }

    public function testASignalDrainsAllConsumersOfAProcess(): void
    {
        $consumers = [$this->consumer(), $this->consumer()];
        foreach ($consumers as $consumer) {
            self::assertNull($consumer->take(0.01));
        }
        $this->tellToStop();
        foreach ($consumers as $consumer) {
            try {
                $consumer->take();
                self::fail('it returned');
            } catch (Drained) {
                $consumer->close();
            }
        }
        self::assertSame(SIG_DFL, pcntl_signal_get_handler(SIGTERM));
    }

    public function testAConsumerThatIsFirstUsedWhileOthersDrainDrainsToo(): void
    {
        $first = $this->consumer();
        self::assertNull($first->take(0.01));
        $this->tellToStop();
        $second = $this->consumer();
        $this->expectException(Drained::class);
        $second->take();
    }

    public function testTheAppsOwnHandlerIsCalledAtOnceWhileItIteratesItself(): void
    {
        $this->listen();
        $consumer = $this->consumer();
        self::assertNull($consumer->take(0.01));
        $this->tellToStop();
        self::assertSame(['the app was told'], $this->seen);
        $this->expectException(Drained::class);
        $consumer->take();
    }

    public function testTheAppsOwnHandlerWhichMayExitIsCalledOnceAWorkerHasSettledWhatItHad(): void
    {
        $this->publish('1');
        $this->listen();
        $this->work(function (): void {
            $this->tellToStop();
            $this->seen[] = 'handled';
        });
        self::assertSame(['handled', 'the app was told'], $this->seen);
        $this->awaitCounters(acked: 1, abandoned: 0);
    }

    public function testASecondSignalActsAsItWouldWithoutTheWorker(): void
    {
        $this->publish('1');
        $this->listen();
        $this->work(function (): void {
            $this->tellToStop();
            $this->tellToStop();
            $this->seen[] = 'handled';
        });
        self::assertSame(['the app was told', 'handled', 'the app was told'], $this->seen);
    }

    public function testASignalActsInAForkedChildAsItWouldWithoutTheConsumer(): void
    {
        $consumer = $this->consumer();
        self::assertNull($consumer->take(0.01));
        $pid = pcntl_fork();
        if ($pid === 0) {
            while (true) {
                sleep(60);
            }
        }
        posix_kill($pid, SIGTERM);
        pcntl_waitpid($pid, $status);
        self::assertSame(SIGTERM, pcntl_wtermsig($status));
        self::assertNull($consumer->take(0.01));
    }

    /** Gives the app a handler of its own. */
    private function listen(): void
    {
        pcntl_signal(SIGTERM, function (): void {
            $this->seen[] = 'the app was told';
        });
    }

    private function tellToStop(): void
    {
        posix_kill((int) getmypid(), SIGTERM);
    }

    private function work(\Closure $handler): void
    {
        (new Worker($this->subscription, static fn (Batch $batch) => $handler(), new Options()))->run();
    }
}
