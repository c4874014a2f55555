<?php

declare(strict_types=1);

namespace Offramp\Internal;

/**
 * The signals that ask this process to stop, shared by all who listen: PHP has one handler for each signal.
 *
 * The first of them calls the function of everyone who listens, then the handler that the app had installed. Further
 * signals act as they would without this: a second Ctrl-C ends the process. Does nothing without ext-pcntl.
 *
 * @internal
 */
final class Signals
{
    /** @var array<int, self> */
    private static array $listening = [];
    /** @var array<int, mixed> the handlers that were there before */
    private static array $before = [];
    private static ?\Closure $handler = null;
    private static bool $wasAsync = false;
    /** a signal came, and those who were told of it have not all stopped to listen */
    private static bool $stopping = false;
    /** @var list<array{callable, int, mixed}> calls of the app's own handlers that wait for workers to finish */
    private static array $later = [];
    private static int $pid = 0;

    /** @param \Closure(): void $call */
    private function __construct(
        private readonly \Closure $call,
        private readonly bool $finishes,
        private readonly bool $everyTime,
    ) {
    }

    /**
     * @param list<string> $names
     * @param \Closure(): void $call
     * @param bool $finishes it stops to listen by itself once it has finished what is in hand: the app's own handler,
     *     which may exit, is called only then
     * @param bool $everyTime further signals call it too
     */
    public static function listen(
        array $names,
        \Closure $call,
        bool $finishes = false,
        bool $everyTime = false,
    ): self {
        $one = new self($call, $finishes, $everyTime);
        if (!function_exists('pcntl_async_signals')) {
            return $one;
        }
        if (self::$pid !== getmypid()) {
            self::forget();
        }
        if (self::$listening === []) {
            self::$wasAsync = pcntl_async_signals(true);
        }
        self::$listening[spl_object_id($one)] = $one;
        if (self::$stopping) {
            $call();
        } else {
            array_walk($names, static fn (string $name) => self::install(constant($name)));
        }
        return $one;
    }

    /** Stops to listen. The last one to do so restores the handlers that were there before. */
    public function stop(): void
    {
        if (!isset(self::$listening[spl_object_id($this)]) || self::$pid !== getmypid()) {
            return;
        }
        unset(self::$listening[spl_object_id($this)]);
        if (self::$listening === []) {
            self::uninstall();
            self::$stopping = false;
            pcntl_async_signals(self::$wasAsync);
        }
        if (!self::mustFinish()) {
            foreach (array_splice(self::$later, 0) as [$handler, $number, $info]) {
                $handler($number, $info);
            }
        }
    }

    private static function install(int $number): void
    {
        self::$handler ??= self::handle(...);
        $handler = pcntl_signal_get_handler($number);
        // What is ignored stays so.
        if ($handler !== self::$handler && $handler !== SIG_IGN) {
            self::$before[$number] = $handler;
            pcntl_signal($number, self::$handler);
        }
    }

    private static function uninstall(): void
    {
        foreach (self::$before as $number => $handler) {
            // The app may have replaced it since.
            if (pcntl_signal_get_handler($number) === self::$handler) {
                pcntl_signal($number, $handler);
            }
        }
        self::$before = [];
    }

    private static function handle(int $number, mixed $info): void
    {
        if (self::$pid !== getmypid()) {
            self::forget();
            if (function_exists('posix_kill')) {
                posix_kill((int) getmypid(), $number);
            }
            return;
        }
        $handler = self::$before[$number] ?? SIG_DFL;
        $told = array_filter(self::$listening, static fn (self $one) => $one->everyTime || !self::$stopping);
        self::$stopping = true;
        if (array_filter(self::$listening, static fn (self $one) => $one->everyTime) === []) {
            self::uninstall();
        }
        foreach ($told as $one) {
            ($one->call)();
        }
        if (is_callable($handler) && self::mustFinish()) {
            self::$later[] = [$handler, $number, $info];
        } elseif (is_callable($handler)) {
            $handler($number, $info);
        }
    }

    private static function mustFinish(): bool
    {
        return array_filter(self::$listening, static fn (self $one) => $one->finishes) !== [];
    }

    /** In a forked child there is nothing to drain: signals act there as they would have without this. */
    private static function forget(): void
    {
        self::$pid = (int) getmypid();
        self::$listening = self::$later = [];
        self::$stopping = false;
        self::uninstall();
    }
}
