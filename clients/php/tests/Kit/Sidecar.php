<?php

declare(strict_types=1);

namespace Offramp\Tests\Kit;

/**
 * A real sidecar process in a folder of its own, on a unix socket, with a local broker.
 *
 * It is the one of this repository, run by the Python in OFFRAMP_PYTHON or by the one that `make` has set up.
 */
final class Sidecar
{
    /** seconds that anything may take on a busy machine */
    public const PATIENCE = 60.0;

    /** of this repository */
    public const ROOT = __DIR__ . '/../../../..';

    public readonly string $folder;
    public readonly string $socket;
    /** @var resource|null */
    private $process = null;

    /** @param array<string, array<string, mixed>> $subscriptions */
    public function __construct(array $subscriptions, string $drain = '1s')
    {
        $this->folder = sys_get_temp_dir() . '/offramp-php-' . bin2hex(random_bytes(6));
        mkdir($this->folder);
        $this->socket = "$this->folder/s";
        foreach ($subscriptions as $name => $settings) {
            $subscriptions[$name] = ['topics' => [$name], 'retry' => ['first' => '1ms'], ...$settings];
        }
        // JSON is YAML.
        file_put_contents("$this->folder/offramp.yaml", json_encode([
            'listen' => ['socket' => $this->socket],
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
        $said = fn (): string => "the sidecar starts\n" . file_get_contents("$this->folder/log");
        self::eventually(fn () => $this->answers(), $said);
        return $this;
    }

    /** One that has what the sidecar needs. */
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
     * Look until what is seen is true, and answer that.
     *
     * @template T
     * @param \Closure(): T $look
     * @return T
     */
    public static function eventually(\Closure $look, string|\Closure $what): mixed
    {
        $until = microtime(true) + self::PATIENCE;
        while (!($seen = $look())) {
            if (microtime(true) > $until) {
                throw new \RuntimeException('did not happen: ' . (is_string($what) ? $what : $what()));
            }
            usleep(5_000);
        }
        return $seen;
    }

    private function answers(): bool
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
