<?php

declare(strict_types=1);

namespace Offramp\Tests\Integration;

use Offramp\Publisher;
use Offramp\Tests\Support\SidecarTestCase;
use Offramp\Tests\Support\Sidecar;

/** bin/offramp-worker as a process. Its handlers write lines to a file, so that tests see which process did what. */
final class WorkerCommandTest extends SidecarTestCase
{
    /** what a handler does in most tests */
    private const NOTE = 'note("did {$batch[0]->value}");';

    /** @var resource|null */
    private $process = null;

    protected function tearDown(): void
    {
        if ($this->process !== null) {
            foreach ([...$this->workers(), proc_get_status($this->process)['pid']] as $pid) {
                posix_kill($pid, SIGKILL);
            }
            proc_close($this->process);
        }
    }

    public function testRecordsAreSharedAmongTheProcesses(): void
    {
        $this->start(self::NOTE . 'usleep(20_000);', '--processes', '3');
        Sidecar::eventually(fn () => count($this->status()->getSessions()) === 3, 'all are connected');
        $this->publishNumbers(60);
        $this->awaitCounters(acked: 60);
        self::assertCount(3, array_unique(array_column($this->notes(), 0)));
        self::assertSame(0, $this->stop(SIGTERM));
    }

    public function testAProcessThatIsKilledIsReplacedAndItsBatchIsRedelivered(): void
    {
        $this->start(self::NOTE . 'if ($batch[0]->attempt === 1) { sleep(60); }', '--processes=2');
        $this->publish('1');
        [[$pid]] = $this->awaitNotes(1);
        posix_kill((int) $pid, SIGKILL);
        $notes = $this->awaitNotes(2);
        self::assertNotSame($pid, $notes[1][0]);
        $this->awaitCounters(acked: 1, abandoned: 1);
        Sidecar::eventually(fn () => count($this->workers()) === 2, 'there are two again');
        self::assertStringContainsString("worker $pid ended by signal 9; starting another", $this->errors());
    }

    public function testAProcessIsRestartedAfterItsMostBatches(): void
    {
        $this->start(self::NOTE, '--max-batches', '3');
        $this->publishNumbers(9);
        $this->awaitCounters(acked: 9, abandoned: 0);
        $counts = array_count_values(array_column($this->notes(), 0));
        self::assertSame([3, 3, 3], array_values($counts));
        self::assertStringNotContainsString('ended', $this->errors());
    }

    public function testAProcessIsRestartedAboveItsMemoryLimit(): void
    {
        $this->start(self::NOTE . 'static $kept = []; $kept[] = str_repeat("x", 40 << 20);', '--memory-limit', '64M');
        $this->publishNumbers(4);
        $this->awaitCounters(acked: 4, abandoned: 0);
        self::assertSame([2, 2], array_values(array_count_values(array_column($this->notes(), 0))));
    }

    public function testASignalLetsAllFinishTheirBatches(): void
    {
        $this->start('note("began"); while (!is_file("GO")) { usleep(10_000); } note("ended");', '--processes', '3');
        $this->publishNumbers(10);
        $this->awaitNotes(3);
        // Stopping a process group signals each process; a worker must not be killed by a second SIGTERM.
        foreach ([...$this->workers(), proc_get_status($this->process)['pid']] as $pid) {
            posix_kill($pid, SIGTERM);
            posix_kill($pid, $pid === proc_get_status($this->process)['pid'] ? 0 : SIGTERM);
        }
        touch($this->folder() . '/GO');
        self::assertSame(0, $this->awaitEnd());
        $words = array_count_values(array_column($this->notes(), 1));
        self::assertSame($words['began'], $words['ended']);
        $this->awaitCounters(acked: $words['ended'], abandoned: 0, nacked: 0);
    }

    public function testASecondSignalKills(): void
    {
        $this->start('note("began"); while (true) { sleep(60); }');
        $this->publish('1');
        $this->awaitNotes(1);
        posix_kill(proc_get_status($this->process)['pid'], SIGINT);
        posix_kill(proc_get_status($this->process)['pid'], SIGTERM);
        self::assertSame(0, $this->awaitEnd());
        $this->awaitCounters(abandoned: 1);
    }

    public function testHandlersThatDoNotEndInTimeAreKilled(): void
    {
        $this->start('note("began"); while (true) { sleep(60); }', '--drain-timeout', '0.3');
        $this->publish('1');
        $this->awaitNotes(1);
        self::assertSame(0, $this->stop(SIGTERM));
        $this->awaitCounters(abandoned: 1);
    }

    public function testAHangupLoadsTheCodeAgain(): void
    {
        $this->start(self::NOTE, '--processes', '2');
        $this->publish('old');
        $this->awaitNotes(1);
        $this->write('note("new code {$batch[0]->value}");');
        $before = $this->workers();
        posix_kill(proc_get_status($this->process)['pid'], SIGHUP);
        Sidecar::eventually(fn () => array_intersect($before, $this->workers()) === [], 'all are new');
        $this->publish('1');
        self::assertSame(['new', 'code', '1'], array_slice($this->awaitNotes(2)[1], 1));
        self::assertStringNotContainsString('ended', $this->errors());
    }

    public function testAFileThatEndsItsProcessIsNotLoadedAgainAndAgainWithoutPause(): void
    {
        $this->write('', 'note("loaded"); exit;');
        $this->launch([]);
        $words = '/worker \d+ ended with exit code 0; starting another in 0\.8 seconds/';
        Sidecar::eventually(fn () => preg_match($words, $this->errors()), 'there are pauses, which grow');
        self::assertGreaterThanOrEqual(4, count($this->notes()));
        self::assertSame(0, $this->stop(SIGTERM));
    }

    public function testATokenFileThatIsEmptyWhenAProcessStartsAgainDoesNotEndAll(): void
    {
        file_put_contents($this->folder() . '/token', 'secret');
        $handler = 'file_put_contents("token", ""); ' . self::NOTE;
        $body = "return new Offramp\\Worker('$this->subscription', function (Offramp\\Batch \$batch): void { $handler }, "
            . "new Offramp\\Options(tokenFile: 'token'));";
        $this->write('', $body);
        $this->launch(['--max-batches', '1']);
        $this->publish('1', '2');
        $words = 'tokenFile: token: that is not a token';
        Sidecar::eventually(fn () => str_contains($this->errors(), $words), 'it is said');
        file_put_contents($this->folder() . '/token', 'secret');
        $this->awaitCounters(acked: 2, abandoned: 0);
    }

    public function testASidecarThatDoesNotAnswerDoesNotHoldWorkersThatAreToStop(): void
    {
        // One holds a batch, one flushes its batch before it ends, and one waits for a batch.
        $flush = 'if ($batch[0]->value === "2") { $batch[0]->ack(); $batch->flush(); }';
        $this->start(self::NOTE . "while (!is_file('GO')) { usleep(10_000); } $flush", '--processes', '3');
        $this->publish('1', '2');
        $this->awaitNotes(2);
        Sidecar::eventually(fn () => count($this->status()->getSessions()) === 3, 'all are connected');
        self::$sidecar->signal(SIGSTOP);
        try {
            $told = microtime(true);
            posix_kill(proc_get_status($this->process)['pid'], SIGTERM);
            touch($this->folder() . '/GO');
            self::assertSame(0, $this->awaitEnd());
            self::assertLessThan(30.0, microtime(true) - $told);
        } finally {
            self::$sidecar->signal(SIGCONT);
        }
    }

    public function testWorkersDoNotOutliveTheirParent(): void
    {
        $this->start(self::NOTE, '--processes', '2');
        $this->publish('1');
        $this->awaitNotes(1);
        $workers = $this->workers();
        self::assertCount(2, $workers);
        posix_kill(proc_get_status($this->process)['pid'], SIGKILL);
        foreach ($workers as $pid) {
            Sidecar::eventually(static fn () => !posix_kill($pid, 0) || self::isZombie($pid), "worker $pid ends");
        }
        $this->awaitCounters(acked: 1, abandoned: 0);
    }

    public function testARefusalEndsAllProcesses(): void
    {
        $this->start(self::NOTE, '--processes', '3', '--subscription', 'no-such-thing');
        self::assertSame(1, $this->awaitEnd());
        self::assertStringContainsString('no-such-thing', $this->errors());
        self::assertStringContainsString($this->subscription, $this->errors());
    }

    public function testTheFileMayReturnAWorker(): void
    {
        $body = "return new Offramp\\Worker('$this->subscription', function (Offramp\\Batch \$batch): void { "
            . self::NOTE . ' });';
        $this->write('', $body);
        $this->launch([]);
        $this->publish('1');
        $this->awaitCounters(acked: 1);
    }

    /** @dataProvider mistakes */
    public function testAMistakeIsNamed(string $sentence, string ...$arguments): void
    {
        file_put_contents($this->folder() . '/empty.php', '<?php ');
        $arguments = str_replace('FOLDER', $this->folder(), $arguments);
        $command = [PHP_BINARY, dirname(__DIR__, 2) . '/bin/offramp-worker', ...$arguments];
        $process = proc_open($command, [1 => ['pipe', 'w'], 2 => ['pipe', 'w']], $pipes);
        self::assertStringContainsString($sentence, stream_get_contents($pipes[2]));
        self::assertNotSame(0, proc_close($process));
    }

    /** @return iterable<array<string>> */
    public static function mistakes(): iterable
    {
        yield ['one file with a handler is needed'];
        yield ['there is no file nothing.php', 'nothing.php'];
        yield ['there is no option --procesess', '--procesess', '2', 'x.php'];
        yield ['--processes: "many"', '--processes', 'many', 'FOLDER/empty.php'];
        yield ['--memory-limit: "much"', '--memory-limit', 'much', 'FOLDER/empty.php'];
        yield ['--processes: a value is missing', '--processes'];
        yield ['returns int: it must return a function', '-s', 'x', 'FOLDER/empty.php'];
        yield ['address: "nowhere"', '--address', 'nowhere', 'FOLDER/empty.php'];
    }

    public function testHelpIsGiven(): void
    {
        $command = PHP_BINARY . ' ' . escapeshellarg(dirname(__DIR__, 2) . '/bin/offramp-worker');
        self::assertStringContainsString('--processes N', (string) shell_exec("$command --help"));
        self::assertSame("0.1.0\n", shell_exec("$command --version"));
    }

    // The command

    private function folder(): string
    {
        $folder = self::$sidecar->folder . '/' . $this->getName(false);
        if (!is_dir($folder)) {
            mkdir($folder);
        }
        return $folder;
    }

    private function write(string $handler, string $body = ''): void
    {
        $note = 'if (!function_exists("note")) { function note(string $text): void { '
            . 'file_put_contents("notes", getmypid() . " $text\n", FILE_APPEND | LOCK_EX); } }';
        $body = $body === '' ? "return function (Offramp\\Batch \$batch): void { $handler };" : $body;
        file_put_contents($this->folder() . '/handler.php', "<?php\n$note\n$body\n");
    }

    private function start(string $handler, string ...$arguments): void
    {
        $this->write($handler);
        $this->launch([...['--subscription', $this->subscription], ...$arguments]);
    }

    /** @param list<string> $arguments */
    private function launch(array $arguments): void
    {
        $command = [PHP_BINARY, dirname(__DIR__, 2) . '/bin/offramp-worker', ...$arguments, 'handler.php'];
        $files = [1 => ['file', $this->folder() . '/out', 'w'], 2 => ['file', $this->folder() . '/errors', 'w']];
        $this->process = proc_open($command, $files, $pipes, $this->folder());
    }

    private function stop(int $signal): int
    {
        posix_kill(proc_get_status($this->process)['pid'], $signal);
        return $this->awaitEnd();
    }

    private function awaitEnd(): int
    {
        $status = [];
        $ended = function () use (&$status): bool {
            $status = proc_get_status($this->process);
            return !$status['running'];
        };
        Sidecar::eventually($ended, fn () => "the command ends\n" . $this->errors());
        proc_close($this->process);
        $this->process = null;
        return $status['exitcode'];
    }

    /** @return list<int> the worker processes */
    private function workers(): array
    {
        $parent = proc_get_status($this->process)['pid'];
        $children = @file_get_contents("/proc/$parent/task/$parent/children");
        $pids = array_map(intval(...), preg_split('/\s+/', (string) $children, -1, PREG_SPLIT_NO_EMPTY));
        return array_values(array_filter($pids, static fn (int $pid) => !self::isZombie($pid)));
    }

    private static function isZombie(int $pid): bool
    {
        return preg_match('/^\d+ \(.*\) [ZX]/', (string) @file_get_contents("/proc/$pid/stat")) === 1;
    }

    private function errors(): string
    {
        return (string) file_get_contents($this->folder() . '/errors');
    }

    /** @return list<list<string>> pid and words */
    private function notes(): array
    {
        $lines = @file($this->folder() . '/notes', FILE_IGNORE_NEW_LINES) ?: [];
        return array_map(static fn (string $line) => explode(' ', $line), $lines);
    }

    /** @return list<list<string>> */
    private function awaitNotes(int $count): array
    {
        return Sidecar::eventually(
            fn () => count($this->notes()) >= $count ? $this->notes() : null,
            fn () => "there are $count notes\n" . $this->errors(),
        );
    }

    private function publishNumbers(int $count): void
    {
        $publisher = new Publisher(subscription: $this->subscription);
        for ($number = 0; $number < $count; $number++) {
            $publisher->publish($this->subscription, (string) $number);
        }
    }
}
