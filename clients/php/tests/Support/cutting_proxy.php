<?php

/*
 * A proxy that loses answers: `php cutting_proxy.php LISTEN TARGET [LOG]`. LISTEN is a unix socket, TARGET is one or
 * host:port.
 *
 * After SIGUSR1 it forwards requests as before, but drops the next answer and closes that connection; after SIGHUP it
 * closes all connections then. On SIGUSR2 it closes all connections at once. It logs the first word of each connection: PRI is HTTP/2.
 */

declare(strict_types=1);

[, $listen, $target] = $argv;
$log = $argv[3] ?? '/dev/null';
$target = str_contains($target, ':') ? "tcp://$target" : "unix://$target";
$cut = $cutAll = $cutAllThen = false;
pcntl_async_signals(true);
pcntl_signal(SIGUSR1, static function () use (&$cut): void {
    $cut = true;
    echo "ready\n";
});
pcntl_signal(SIGHUP, static function () use (&$cut, &$cutAllThen): void {
    $cut = $cutAllThen = true;
    echo "ready\n";
});
pcntl_signal(SIGUSR2, static function () use (&$cutAll): void {
    $cutAll = true;
});
$server = stream_socket_server("unix://$listen");
/** @var array<int, array{resource, resource}> pairs of (from, to), by the id of the first */
$pairs = [];
echo "ready\n";
while (true) {
    if ($cutAll) {
        array_map(static fn (array $pair) => fclose($pair[0]), $pairs);
        $pairs = [];
        $cutAll = false;
        echo "ready\n";
    }
    $read = [$server, ...array_column($pairs, 0)];
    $write = $except = null;
    // A short timeout: a signal may have arrived just before.
    if (!@stream_select($read, $write, $except, 0, 10_000)) {
        continue;
    }
    foreach ($read as $stream) {
        if ($stream === $server) {
            $client = stream_socket_accept($server);
            $behind = stream_socket_client($target);
            $pairs[(int) $client] = [$client, $behind, 'first'];
            $pairs[(int) $behind] = [$behind, $client, 'answer'];
            continue;
        }
        if (!isset($pairs[(int) $stream])) {
            continue;
        }
        [$from, $to, $kind] = $pairs[(int) $stream];
        $data = fread($from, 1 << 16);
        if ($kind === 'first') {
            file_put_contents($log, strtok((string) $data, " \r\n") . "\n", FILE_APPEND);
            $pairs[(int) $from][2] = 'request';
        }
        if ($data === '' || $data === false || ($cut && $kind === 'answer' && strlen($data) > 60)) {
            $cut = $cut && ($data === '' || $data === false);
            if (!$cut && $cutAllThen) {
                $cutAllThen = false;
                array_map(static fn (array $pair) => fclose($pair[0]), $pairs);
                $pairs = [];
                continue 2;
            }
            unset($pairs[(int) $from], $pairs[(int) $to]);
            fclose($from);
            fclose($to);
        } else {
            fwrite($to, $data);
        }
    }
}
