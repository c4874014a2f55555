<?php

/*
 * A proxy between two unix sockets that loses answers: `php cutter.php LISTEN TARGET`.
 *
 * After SIGUSR1 it hands on requests as before, but drops the next answer and closes that connection.
 */

declare(strict_types=1);

[, $listen, $target] = $argv;
$cut = false;
pcntl_async_signals(true);
pcntl_signal(SIGUSR1, static function () use (&$cut): void {
    $cut = true;
    echo "ready\n";
});
$server = stream_socket_server("unix://$listen");
/** @var array<int, array{resource, resource}> pairs of (from, to), by the id of the first */
$pairs = [];
echo "ready\n";
while (true) {
    $read = [$server, ...array_column($pairs, 0)];
    $write = $except = null;
    if (@stream_select($read, $write, $except, 60) === false) {
        continue;
    }
    foreach ($read as $stream) {
        if ($stream === $server) {
            $client = stream_socket_accept($server);
            $behind = stream_socket_client("unix://$target");
            $pairs[(int) $client] = [$client, $behind, 'request'];
            $pairs[(int) $behind] = [$behind, $client, 'answer'];
            continue;
        }
        if (!isset($pairs[(int) $stream])) {
            continue;
        }
        [$from, $to, $kind] = $pairs[(int) $stream];
        $data = fread($from, 1 << 16);
        if ($data === '' || $data === false || ($cut && $kind === 'answer' && strlen($data) > 60)) {
            $cut = $cut && ($data === '' || $data === false);
            unset($pairs[(int) $from], $pairs[(int) $to]);
            fclose($from);
            fclose($to);
        } else {
            fwrite($to, $data);
        }
    }
}
