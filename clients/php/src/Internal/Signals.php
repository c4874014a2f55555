<?php

declare(strict_types=1);

namespace Offramp\Internal;

/**
 * Calls a function at the first of some signals, until `restore`. Unless it is `sticky`, further signals act as they
 * would without it: a second Ctrl-C ends the process. Does nothing without ext-pcntl.
 *
 * @internal
 */
final class Signals
{
    /** @var array<int, mixed> the previous handlers */
    private array $before = [];
    private bool $async = false;

    /**
     * @param list<string> $names
     * @param \Closure(): void $call
     * @param bool $polite only signals that have no handler yet
     */
    public function __construct(array $names, \Closure $call, bool $polite, bool $sticky = false)
    {
        if (!function_exists('pcntl_async_signals')) {
            return;
        }
        $this->async = pcntl_async_signals(true);
        foreach ($names as $name) {
            $number = constant($name);
            $handler = pcntl_signal_get_handler($number);
            if ($polite && $handler !== SIG_DFL) {
                continue;
            }
            $this->before[$number] = $handler;
            pcntl_signal($number, function () use ($call, $sticky): void {
                if (!$sticky) {
                    $this->restore();
                }
                $call();
            });
        }
    }

    public function restore(): void
    {
        foreach ($this->before as $number => $handler) {
            pcntl_signal($number, $handler);
        }
        if ($this->before !== [] && !$this->async) {
            pcntl_async_signals(false);
        }
        $this->before = [];
    }
}
