<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Exception\MissingExtension;
use Offramp\Exception\Refused;
use Offramp\Grpc\NoToken;
use Psr\Log\LoggerInterface;

/**
 * Several workers, each in a process of its own with a session of its own. Those that end are started again.
 *
 *     exit((new Pool(fn () => new Worker('orders', new OrderHandler()), processes: 8))->run());
 *
 * SIGTERM, SIGINT and SIGQUIT drain all of them; a second one kills them. SIGHUP drains them one and all and starts
 * new ones, which load their code again. Needs ext-pcntl and ext-posix.
 */
final class Pool
{
    /** exit code of a worker that the sidecar has refused: no other one would fare better */
    private const REFUSED = 78;
    /** exit code of a worker that has reached a limit of its own: the next one may begin at once */
    private const SPENT = 79;
    /** seconds; a worker that ends sooner, and was not to, is not started again at once */
    private const SHORT_LIFE = 5.0;
    /** seconds between two starts of a worker that fails */
    private const FIRST_PAUSE = 0.2;
    private const LONGEST_PAUSE = 10.0;
    /** microseconds between two looks at the children, if no signal comes in between */
    private const LOOK = 200_000;

    /** @var array<int, int> place of a worker by its pid */
    private array $places = [];
    /** @var array<int, float> when the worker of a place was started */
    private array $started = [];
    /** @var array<int, float> when the worker of a place is to be started */
    private array $due = [];
    /** @var array<int, float> seconds that the next start of a place waits */
    private array $pauses = [];
    /** @var array<int, true> pids of workers that were told to make room for new ones */
    private array $recycled = [];
    private int $stops = 0;
    private bool $recycle = false;
    private int $code = 0;

    /**
     * @param \Closure(): Worker $make called in each new process: what it loads and opens, the process has for itself
     * @param float|null $drainTimeout seconds that handlers get to finish once it drains. Default: as long as they take
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
                    . "php-cli; Docker: docker-php-ext-install $extension), or run single workers under a supervisor of your own"
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
        $before = pcntl_async_signals(true);
        $handlers = $this->listen();
        try {
            $this->due = array_fill(0, $this->processes, 0.0);
            $this->say("starting $this->processes worker(s)");
            $killAt = INF;
            while ($this->places !== [] || ($this->stops === 0 && $this->due !== [])) {
                if ($this->stops > 0) {
                    if ($killAt === INF) {
                        $killAt = $this->drainTimeout === null ? PHP_FLOAT_MAX : microtime(true) + $this->drainTimeout;
                        $this->tell(SIGTERM);
                    }
                    if ($this->stops > 1 || microtime(true) > $killAt) {
                        $this->tell(SIGKILL);
                    }
                } else {
                    if ($this->recycle) {
                        $this->recycle = false;
                        $this->say('starting all workers again');
                        $this->recycled = array_fill_keys(array_keys($this->places), true);
                        $this->tell(SIGTERM);
                    }
                    $this->start();
                }
                if (!$this->reap()) {
                    usleep(self::LOOK);
                }
            }
            $this->say('all workers have ended');
            return $this->code;
        } finally {
            foreach ($handlers as $number => $handler) {
                pcntl_signal($number, $handler);
            }
            pcntl_async_signals($before);
        }
    }

    /** @return array<int, mixed> the handlers that there were before */
    private function listen(): array
    {
        $before = [];
        $react = [
            SIGTERM => fn () => $this->stops++,
            SIGINT => fn () => $this->stops++,
            SIGQUIT => fn () => $this->stops++,
            SIGHUP => fn () => $this->recycle = true,
            // So that it ends the pause between two looks.
            SIGCHLD => static fn () => null,
        ];
        foreach ($react as $number => $handler) {
            $before[$number] = pcntl_signal_get_handler($number);
            pcntl_signal($number, $handler);
        }
        return $before;
    }

    private function start(): void
    {
        foreach ($this->due as $place => $when) {
            if ($when > microtime(true)) {
                continue;
            }
            $parent = (int) getmypid();
            $pid = pcntl_fork();
            if ($pid === -1) {
                $this->pause($place, 'no further process can be made: ' . pcntl_strerror(pcntl_get_last_error()));
            } elseif ($pid === 0) {
                $this->work($parent, $place);
            } else {
                unset($this->due[$place]);
                $this->places[$pid] = $place;
                $this->started[$place] = microtime(true);
            }
        }
    }

    /** The life of a child. */
    private function work(int $parent, int $place): never
    {
        // Ctrl-C goes to all processes of a terminal; the parent says what it means.
        foreach ([SIGINT, SIGQUIT, SIGHUP] as $number) {
            pcntl_signal($number, SIG_IGN);
        }
        pcntl_signal(SIGCHLD, SIG_DFL);
        // From here to the worker's own handler: one that has not begun has nothing to finish.
        pcntl_signal(SIGTERM, SIG_DFL);
        if ($this->stops > 0) {
            exit(0);
        }
        // All children would throw the same dice.
        mt_srand();
        try {
            $worker = ($this->make)();
            $worker->dependOn($parent);
            $worker->run();
            exit($worker->isSpent() ? self::SPENT : 0);
        } catch (NoToken $error) {
            $this->say($error->getMessage());
            // It had one when the first worker of this place began: somebody is writing it.
            exit(isset($this->started[$place]) ? 1 : self::REFUSED);
        } catch (Refused | MissingExtension | \InvalidArgumentException $error) {
            $this->say($error->getMessage());
            exit(self::REFUSED);
        } catch (\Throwable $error) {
            $this->say("a worker failed: $error");
            exit(1);
        }
    }

    /** Whether a child had ended. */
    private function reap(): bool
    {
        $pid = pcntl_wait($status, WNOHANG);
        if ($pid <= 0 || !isset($this->places[$pid])) {
            return $pid > 0;
        }
        $place = $this->places[$pid];
        $recycled = isset($this->recycled[$pid]);
        unset($this->places[$pid], $this->recycled[$pid]);
        $code = pcntl_wifexited($status) ? pcntl_wexitstatus($status) : -1;
        if ($code === self::REFUSED) {
            $this->code = 1;
            $this->stops = max($this->stops, 1);
        } elseif ($this->stops > 0) {
            return true;
        } elseif ($code === self::SPENT || ($recycled && $this->endedByRequest($status))) {
            $this->due[$place] = 0.0;
            $this->pauses[$place] = self::FIRST_PAUSE;
        } else {
            $how = $code >= 0 ? "with exit code $code" : 'by signal ' . pcntl_wtermsig($status);
            $this->pause($place, "worker $pid ended $how");
        }
        return true;
    }

    /** It has drained, or had not begun when it was told to. */
    private function endedByRequest(int $status): bool
    {
        return pcntl_wifexited($status) ? pcntl_wexitstatus($status) === 0 : pcntl_wtermsig($status) === SIGTERM;
    }

    private function pause(int $place, string $why): void
    {
        $lasted = microtime(true) - ($this->started[$place] ?? 0.0);
        $pause = $lasted >= self::SHORT_LIFE ? 0.0 : ($this->pauses[$place] ?? 0.0);
        $this->pauses[$place] = min(max($pause * 2, self::FIRST_PAUSE), self::LONGEST_PAUSE);
        $this->due[$place] = microtime(true) + $pause;
        $this->say("$why; starting another" . ($pause > 0 ? sprintf(' in %.1f seconds', $pause) : ''));
    }

    private function tell(int $signal): void
    {
        foreach ($this->places as $pid => $_) {
            posix_kill($pid, $signal);
        }
    }

    private function say(string $text): void
    {
        if ($this->logger !== null) {
            $this->logger->info($text);
        } else {
            fwrite(STDERR, "offramp-worker: $text\n");
        }
    }
}
