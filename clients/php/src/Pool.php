<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Exception\MissingExtension;
use Offramp\Exception\Refused;
use Offramp\Grpc\TokenFileError;
use Offramp\Internal\Signals;
use Psr\Log\LoggerInterface;

/**
 * Several workers, each in its own process with its own session. Workers that end are started again.
 *
 *     exit((new Pool(fn () => new Worker('orders', new OrderHandler()), processes: 8))->run());
 *
 * SIGTERM, SIGINT and SIGQUIT drain all workers; a second one kills them. SIGHUP drains all of them and starts new
 * ones, which load the code again. Needs ext-pcntl and ext-posix.
 */
final class Pool
{
    /** exit code of a worker that the sidecar has refused: another one would be refused, too */
    private const REFUSED = 78;
    /** exit code of a worker that has reached its limit: the next one may start at once */
    private const LIMIT_REACHED = 79;
    /** seconds; a worker that fails sooner is not started again at once */
    private const SHORT_LIFE = 5.0;
    /** seconds between two starts of a worker that fails */
    private const FIRST_PAUSE = 0.2;
    private const LONGEST_PAUSE = 10.0;
    /** microseconds between two checks of the children, unless a signal arrives */
    private const POLL_INTERVAL = 200_000;

    /** @var array<int, int> slot of a worker by its pid */
    private array $slots = [];
    /** @var array<int, float> when the worker of a slot was started */
    private array $started = [];
    /** @var array<int, float> when the worker of a slot is to be started */
    private array $due = [];
    /** @var array<int, float> seconds that the next start of a slot waits */
    private array $pauses = [];
    /** @var array<int, true> pids of workers that were told to stop so that new ones replace them */
    private array $recycled = [];
    /** signals received that stop all workers */
    private int $stops = 0;
    private bool $recycle = false;
    private int $exitCode = 0;

    /**
     * @param \Closure(): Worker $make called in each new process, which has what it loads and opens for itself
     * @param float|null $drainTimeout seconds that handlers get to finish on a drain. Default: as long as they take
     * @throws MissingExtension
     */
    public function __construct(
        private readonly \Closure $make,
        private readonly int $processes = 1,
        private readonly ?float $drainTimeout = null,
        private readonly ?LoggerInterface $logger = null,
    ) {
        foreach (['pcntl', 'posix'] as $extension) {
            if (!extension_loaded($extension)) {
                throw new MissingExtension(
                    "several worker processes need PHP's $extension extension: install it (Debian: it is part of "
                    . "php-cli; Docker: docker-php-ext-install $extension), or run single workers under your own "
                    . 'supervisor'
                );
            }
        }
        if ($processes < 1) {
            throw new \InvalidArgumentException("processes: $processes is less than 1");
        }
    }

    /** Returns when all workers have ended after a signal: 0, or 1 if the sidecar refused them. */
    public function run(): int
    {
        $names = ['SIGTERM', 'SIGINT', 'SIGQUIT'];
        $stops = Signals::listen($names, fn () => $this->stops++, finishes: true, everyTime: true);
        $handlers = $this->listen();
        try {
            $this->due = array_fill(0, $this->processes, 0.0);
            $this->log("starting $this->processes worker(s)");
            $killAt = INF;
            while ($this->slots !== [] || ($this->stops === 0 && $this->due !== [])) {
                if ($this->stops > 0) {
                    if ($killAt === INF) {
                        $killAt = $this->drainTimeout === null ? PHP_FLOAT_MAX : microtime(true) + $this->drainTimeout;
                        $this->signalAll(SIGTERM);
                    }
                    if ($this->stops > 1 || microtime(true) > $killAt) {
                        $this->signalAll(SIGKILL);
                    }
                } else {
                    if ($this->recycle) {
                        $this->recycle = false;
                        $this->log('restarting all workers');
                        $this->recycled = array_fill_keys(array_keys($this->slots), true);
                        $this->signalAll(SIGTERM);
                    }
                    $this->startDue();
                }
                if (!$this->reap()) {
                    usleep(self::POLL_INTERVAL);
                }
            }
            $this->log('all workers have ended');
            return $this->exitCode;
        } finally {
            foreach ($handlers as $number => $handler) {
                pcntl_signal($number, $handler);
            }
            // Last: it may call a handler of the app that exits.
            $stops->stop();
        }
    }

    /** @return array<int, mixed> the previous handlers */
    private function listen(): array
    {
        $before = [];
        $react = [
            SIGHUP => fn () => $this->recycle = true,
            // So that it interrupts the sleep between two checks.
            SIGCHLD => static fn () => null,
        ];
        foreach ($react as $number => $handler) {
            $before[$number] = pcntl_signal_get_handler($number);
            pcntl_signal($number, $handler);
        }
        return $before;
    }

    private function startDue(): void
    {
        foreach ($this->due as $slot => $when) {
            if ($when > microtime(true)) {
                continue;
            }
            $parent = (int) getmypid();
            $pid = pcntl_fork();
            if ($pid === -1) {
                $this->scheduleRestart($slot, 'cannot fork: ' . pcntl_strerror(pcntl_get_last_error()));
            } elseif ($pid === 0) {
                $this->runChild($parent, $slot);
            } else {
                unset($this->due[$slot]);
                $this->slots[$pid] = $slot;
                $this->started[$slot] = microtime(true);
            }
        }
    }

    private function runChild(int $parent, int $slot): never
    {
        // Ctrl-C goes to all processes of a terminal; the parent decides what to do.
        foreach ([SIGINT, SIGQUIT, SIGHUP] as $number) {
            pcntl_signal($number, SIG_IGN);
        }
        pcntl_signal(SIGCHLD, SIG_DFL);
        // Until the worker sets its own handler: before that there is nothing to finish.
        pcntl_signal(SIGTERM, SIG_DFL);
        if ($this->stops > 0) {
            exit(0);
        }
        // Otherwise all children would have the same random numbers.
        mt_srand();
        try {
            $worker = ($this->make)();
            $worker->dependOn($parent);
            $worker->run();
            exit($worker->limitReached() ? self::LIMIT_REACHED : 0);
        } catch (TokenFileError $error) {
            $this->log($error->getMessage(), 'error');
            // The file had a token when the first worker of this slot started: it is being written.
            exit(isset($this->started[$slot]) ? 1 : self::REFUSED);
        } catch (Refused | MissingExtension | \InvalidArgumentException $error) {
            $this->log($error->getMessage(), 'error');
            exit(self::REFUSED);
        } catch (\Throwable $error) {
            $this->log("a worker failed: $error", 'error');
            exit(1);
        }
    }

    /** Handles one child that has ended. Returns whether there was one. */
    private function reap(): bool
    {
        $pid = pcntl_wait($status, WNOHANG);
        if ($pid <= 0 || !isset($this->slots[$pid])) {
            return $pid > 0;
        }
        $slot = $this->slots[$pid];
        $recycled = isset($this->recycled[$pid]);
        unset($this->slots[$pid], $this->recycled[$pid]);
        $code = pcntl_wifexited($status) ? pcntl_wexitstatus($status) : -1;
        // With code 0 it has drained; by SIGTERM it had not started yet.
        $stoppedAsTold = $code === 0 || ($code < 0 && pcntl_wtermsig($status) === SIGTERM);
        if ($code === self::REFUSED) {
            $this->exitCode = 1;
            $this->stops = max($this->stops, 1);
        } elseif ($this->stops > 0) {
            return true;
        } elseif ($code === self::LIMIT_REACHED || ($recycled && $stoppedAsTold)) {
            $this->due[$slot] = 0.0;
            $this->pauses[$slot] = self::FIRST_PAUSE;
        } else {
            $how = $code >= 0 ? "with exit code $code" : 'by signal ' . pcntl_wtermsig($status);
            $this->scheduleRestart($slot, "worker $pid ended $how");
        }
        return true;
    }

    private function scheduleRestart(int $slot, string $why): void
    {
        $lasted = microtime(true) - ($this->started[$slot] ?? 0.0);
        $pause = $lasted >= self::SHORT_LIFE ? 0.0 : ($this->pauses[$slot] ?? 0.0);
        $this->pauses[$slot] = min(max($pause * 2, self::FIRST_PAUSE), self::LONGEST_PAUSE);
        $this->due[$slot] = microtime(true) + $pause;
        $this->log("$why; starting another" . ($pause > 0 ? sprintf(' in %.1f seconds', $pause) : ''), 'error');
    }

    private function signalAll(int $signal): void
    {
        foreach ($this->slots as $pid => $_) {
            posix_kill($pid, $signal);
        }
    }

    private function log(string $text, string $level = 'info'): void
    {
        if ($this->logger !== null) {
            $this->logger->log($level, $text);
        } else {
            fwrite(STDERR, "offramp-worker: $text\n");
        }
    }
}
