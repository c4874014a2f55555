<?php

declare(strict_types=1);

namespace Offramp\Tests\Integration;

use Offramp\Consumer;
use Offramp\Tests\Support\SidecarTestCase;

/** Connections over TCP that are cut, and sessions that are resumed. */
final class ResumeTest extends SidecarTestCase
{
    /** @var resource */
    private $proxy;
    /** @var resource its output */
    private $said;

    protected function setUp(): void
    {
        parent::setUp();
        $command = [PHP_BINARY, dirname(__DIR__) . '/Support/cutting_proxy.php', $this->listen(), self::$sidecar->tcp];
        $this->proxy = proc_open($command, [1 => ['pipe', 'w']], $pipes);
        $this->said = $pipes[1];
        self::assertSame("ready\n", fgets($this->said));
    }

    protected function tearDown(): void
    {
        proc_terminate($this->proxy, SIGKILL);
    }

    public function testBatchesInHandSurviveACut(): void
    {
        $consumer = $this->resuming();
        $this->publish('1', '2');
        $first = $this->take($consumer);
        $this->tell(SIGUSR2);
        self::assertFalse($first->isLost());
        $second = $this->take($consumer);
        self::assertSame(['2', 1], [$second[0]->value, $second[0]->attempt]);
        self::assertFalse($first->isLost());
        self::assertTrue($first->ack()->isSettled());
        self::assertTrue($second->ack()->isSettled());
        $this->awaitCounters(delivered: 2, redelivered: 0, acked: 2, abandoned: 0, resumedSessions: 1);
    }

    public function testABatchWhoseAnswerIsCutWithAllConnectionsIsDeliveredOnce(): void
    {
        $consumer = $this->resuming();
        $this->publish('1', '2');
        $first = $this->take($consumer);
        $this->tell(SIGHUP);
        $second = $this->take($consumer);
        self::assertSame(['2', 1], [$second[0]->value, $second[0]->attempt]);
        self::assertFalse($first->isLost());
        self::assertTrue($first->ack()->isSettled());
        self::assertTrue($second->ack()->isSettled());
        $this->awaitCounters(delivered: 2, redelivered: 0, acked: 2, abandoned: 0, resumedSessions: 1);
    }

    public function testWithoutTheOptionBatchesInHandAreLostWithTheirConnection(): void
    {
        $consumer = $this->consumer(address: $this->listen());
        $this->publish('1');
        $first = $this->take($consumer);
        $this->tell(SIGUSR2);
        self::assertTrue($first->isLost());
        $again = $this->take($consumer);
        self::assertSame(['1', 2, true], [$again[0]->value, $again[0]->attempt, $again[0]->possiblyProcessed]);
        self::assertTrue($again->ack()->isSettled());
        $this->awaitCounters(abandoned: 1, resumedSessions: 0);
    }

    private function listen(): string
    {
        return self::$sidecar->folder . '/' . $this->subscription;
    }

    private function resuming(): Consumer
    {
        return $this->consumer(address: $this->listen(), resume: 60.0);
    }

    private function tell(int $signal): void
    {
        posix_kill(proc_get_status($this->proxy)['pid'], $signal);
        self::assertSame("ready\n", fgets($this->said));
    }
}
