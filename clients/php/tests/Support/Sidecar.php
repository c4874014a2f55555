<?php

declare(strict_types=1);

namespace Offramp\Tests\Support;

/**
 * A real sidecar process in its own folder, on a unix socket, with a local broker.
 *
 * It runs the sidecar of this repository, with the Python in OFFRAMP_PYTHON or the one that `make` has set up.
 */
final class Sidecar
{
    /** seconds that anything may take on a busy machine */
    public const TIMEOUT = 60.0;

    /** of this repository */
    public const ROOT = __DIR__ . '/../../../..';

    public readonly string $folder;
    public readonly string $socket;
    /** host:port */
    public readonly string $tcp;
    /** @var resource|null */
    private $process = null;

    /** @param array<string, array<string, mixed>> $subscriptions */
    public function __construct(array $subscriptions, string $drain = '1s')
    {
        $this->folder = sys_get_temp_dir() . '/offramp-php-' . bin2hex(random_bytes(6));
        mkdir($this->folder);
        $this->socket = "$this->folder/s";
        $free = stream_socket_server('tcp://127.0.0.1:0');
        $this->tcp = stream_socket_get_name($free, false);
        fclose($free);
        foreach ($subscriptions as $name => $settings) {
            $subscriptions[$name] = ['topics' => [$name], 'retry' => ['first' => '1ms'], ...$settings];
        }
        // JSON is YAML.
        file_put_contents("$this->folder/offramp.yaml", json_encode([
            'listen' => ['socket' => $this->socket, 'tcp' => $this->tcp],
            'http' => ['address' => ''],
            'drain' => ['deadline' => $drain],
            'brokers' => ['local' => ['type' => 'local', 'directory' => "$this->folder/data"]],
            'subscriptions' => $subscriptions,
        ]));
    }

    public function start(): self
    {
        $log = ['file', "$this->folder/log", 'a'];
        $command = [self::python(), '-m', 'sidecar', 'run', '--config', "$this->folder/offramp.yaml"];
        $this->process = proc_open($command, [1 => $log, 2 => $log], $pipes, self::ROOT);
        $what = fn (): string => "the sidecar starts\n" . file_get_contents("$this->folder/log");
        self::eventually(fn () => $this->isListening(), $what);
        return $this;
    }

    /** A Python that has what the sidecar needs. */
    public static function python(): string
    {
        return getenv('OFFRAMP_PYTHON') ?: self::ROOT . '/.venv/bin/python';
    }

    public function kill(): void
    {
        $this->end(SIGKILL);
    }

    public function signal(int $number): void
    {
        proc_terminate($this->process, $number);
    }

    public function stop(): void
    {
        $this->end(SIGTERM);
        exec('rm -rf ' . escapeshellarg($this->folder));
    }

    /**
     * Calls `check` until it returns something true, and returns that.
     *
     * @template T
     * @param \Closure(): T $check
     * @return T
     */
    public static function eventually(\Closure $check, string|\Closure $what): mixed
    {
        $until = microtime(true) + self::TIMEOUT;
        while (!($seen = $check())) {
            if (microtime(true) > $until) {
                throw new \RuntimeException('did not happen: ' . (is_string($what) ? $what : $what()));
            }
            usleep(5_000);
        }
        return $seen;
    }

    private function isListening(): bool
    {
        $client = @stream_socket_client("unix://$this->socket");
        if ($client !== false) {
            fclose($client);
        }
        return $client !== false;
    }

    private function end(int $signal): void
    {
        if ($this->process !== null) {
            proc_terminate($this->process, $signal);
            self::eventually(fn () => !proc_get_status($this->process)['running'], 'the sidecar ends');
            proc_close($this->process);
            $this->process = null;
        }
    }
}
