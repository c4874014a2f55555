<?php

declare(strict_types=1);

namespace Offramp\Tests\Real;

use Offramp\Exception\Unavailable;
use Offramp\Publisher;
use Offramp\Tests\Kit\RealTestCase;

/** How connections are used again, and what happens when they break. */
final class ChannelTest extends RealTestCase
{
    /** @var resource */
    private $cutter;
    /** @var resource */
    private $says;
    private string $log;
    private Publisher $publisher;

    protected function setUp(): void
    {
        parent::setUp();
        $listen = self::$sidecar->folder . '/' . substr(md5($this->subscription), 0, 8);
        $this->log = "$listen.log";
        $command = [PHP_BINARY, dirname(__DIR__) . '/Kit/cutter.php', $listen, self::$sidecar->socket, $this->log];
        $this->cutter = proc_open($command, [1 => ['pipe', 'w']], $pipes);
        $this->says = $pipes[1];
        self::assertSame("ready\n", fgets($this->says));
        $this->publisher = new Publisher(broker: 'local', address: $listen);
    }

    protected function tearDown(): void
    {
        proc_terminate($this->cutter, SIGKILL);
        proc_close($this->cutter);
    }

    public function testACallThatTheSidecarMayHaveUnderstoodIsNotSentTwice(): void
    {
        $this->learn();
        // A new connection must be made, and on that the answer is lost.
        $this->tell(SIGUSR2);
        $this->tell(SIGUSR1);
        try {
            self::assertSame(4, $this->send());
            self::fail('the answer was lost');
        } catch (Unavailable $error) {
            self::assertStringContainsString('some of it may have been published', $error->getMessage());
        }
        self::assertSame(5, $this->send());
    }

    public function testWhatWasLearnedOfThisLibcurlIsKept(): void
    {
        $this->learn();
        for ($count = 0; $count < 3; $count++) {
            $this->tell(SIGUSR2);
            $this->send();
        }
        self::assertSame(3, $this->misses());
    }

    public function testALibcurlThatWasTakenForAnotherIsKnownAgainAfterOneCall(): void
    {
        $this->learn();
        try {
            $this->send();
        } catch (Unavailable) {
            // libcurl 7.88 cannot use a connection again by prior knowledge.
        }
        $first = $this->send();
        self::assertSame([$first + 1, $first + 2, $first + 3], [$this->send(), $this->send(), $this->send()]);
    }

    public function testALibcurlThatHasUsedAConnectionAgainIsNotTakenForAnother(): void
    {
        $this->send();
        $this->send();
        if ($this->misses() > 0) {
            self::markTestSkipped('this libcurl uses connections again by prior knowledge');
        }
        for ($count = 0; $count < 4; $count++) {
            $this->tell(SIGUSR2);
            $this->send();
        }
        $connections = count($this->connections());
        $this->send();
        $this->send();
        self::assertCount($connections, $this->connections());
    }

    /** Let three calls in a row find that there is no connection to use again. */
    private function learn(): void
    {
        for ($count = 0; $count < 4; $count++) {
            if ($count > 0) {
                $this->tell(SIGUSR2);
            }
            self::assertSame($count, $this->send());
        }
        self::assertSame(3, $this->misses());
    }

    private function send(): int
    {
        return $this->publisher->publish($this->subscription, 'x', lane: 0)->position;
    }

    private function tell(int $signal): void
    {
        posix_kill(proc_get_status($this->cutter)['pid'], $signal);
        self::assertSame("ready\n", fgets($this->says));
    }

    /** Connections on which no HTTP/2 was spoken. */
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
