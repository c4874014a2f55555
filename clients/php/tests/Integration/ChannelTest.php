<?php

declare(strict_types=1);

namespace Offramp\Tests\Integration;

use Offramp\Exception\Unavailable;
use Offramp\Publisher;
use Offramp\Tests\Support\SidecarTestCase;

/** How connections are reused, and what happens when they break. */
final class ChannelTest extends SidecarTestCase
{
    /** @var resource */
    private $proxy;
    /** @var resource */
    private $proxyOutput;
    private string $log;
    private Publisher $publisher;

    protected function setUp(): void
    {
        parent::setUp();
        $listen = self::$sidecar->folder . '/' . substr(md5($this->subscription), 0, 8);
        $this->log = "$listen.log";
        $command = [PHP_BINARY, dirname(__DIR__) . '/Support/cutting_proxy.php', $listen, self::$sidecar->socket, $this->log];
        $this->proxy = proc_open($command, [1 => ['pipe', 'w']], $pipes);
        $this->proxyOutput = $pipes[1];
        self::assertSame("ready\n", fgets($this->proxyOutput));
        $this->publisher = new Publisher(broker: 'local', address: $listen);
    }

    protected function tearDown(): void
    {
        proc_terminate($this->proxy, SIGKILL);
        proc_close($this->proxy);
    }

    public function testACallThatTheSidecarMayHaveReadIsNotSentTwice(): void
    {
        $this->loseThreeConnections();
        // The next call makes a new connection, on which the answer is lost.
        $this->signal(SIGUSR2);
        $this->signal(SIGUSR1);
        try {
            self::assertSame(4, $this->send());
            self::fail('the answer was lost');
        } catch (Unavailable $error) {
            self::assertStringContainsString('some of it may have been published', $error->getMessage());
        }
        self::assertSame(5, $this->send());
    }

    public function testTheAssumptionAboutThisLibcurlIsKept(): void
    {
        $this->loseThreeConnections();
        for ($count = 0; $count < 3; $count++) {
            $this->signal(SIGUSR2);
            $this->send();
        }
        self::assertSame(3, $this->misses());
    }

    public function testAWrongAssumptionAboutThisLibcurlIsCorrectedAfterOneCall(): void
    {
        $this->loseThreeConnections();
        try {
            $this->send();
        } catch (Unavailable) {
            // libcurl 7.88 cannot reuse a connection with prior knowledge.
        }
        $first = $this->send();
        self::assertSame([$first + 1, $first + 2, $first + 3], [$this->send(), $this->send(), $this->send()]);
    }

    public function testALibcurlThatHasReusedAConnectionIsRecognised(): void
    {
        $this->send();
        $this->send();
        if ($this->misses() > 0) {
            self::markTestSkipped('this libcurl reuses connections with prior knowledge');
        }
        for ($count = 0; $count < 4; $count++) {
            $this->signal(SIGUSR2);
            $this->send();
        }
        $connections = count($this->connections());
        $this->send();
        $this->send();
        self::assertCount($connections, $this->connections());
    }

    /** Makes three calls in a row that find no connection to reuse. */
    private function loseThreeConnections(): void
    {
        for ($count = 0; $count < 4; $count++) {
            if ($count > 0) {
                $this->signal(SIGUSR2);
            }
            self::assertSame($count, $this->send());
        }
        self::assertSame(3, $this->misses());
    }

    private function send(): int
    {
        return $this->publisher->publish($this->subscription, 'x', lane: 0)->position;
    }

    private function signal(int $signal): void
    {
        posix_kill(proc_get_status($this->proxy)['pid'], $signal);
        self::assertSame("ready\n", fgets($this->proxyOutput));
    }

    /** Connections that did not begin with HTTP/2. */
    private function misses(): int
    {
        return count(array_diff($this->connections(), ['PRI']));
    }

    /** @return list<string> the first word of each */
    private function connections(): array
    {
        return file($this->log, FILE_IGNORE_NEW_LINES);
    }
}
