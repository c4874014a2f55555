<?php

/*
 * Consumes this many records and measures it: `php bench.php SUBSCRIPTION RECORDS`. Prints one line of JSON: records,
 * seconds and CPU seconds from the first batch to the result of the last settlement.
 */

declare(strict_types=1);

use Offramp\Batch;
use Offramp\Options;
use Offramp\SettleResult;
use Offramp\Worker;

require __DIR__ . '/../autoload.php';

[, $subscription, $records] = $argv;

function cpu(): float
{
    $usage = getrusage();
    return $usage['ru_utime.tv_sec'] + $usage['ru_stime.tv_sec']
        + ($usage['ru_utime.tv_usec'] + $usage['ru_stime.tv_usec']) / 1_000_000;
}

$began = $cpu = $ended = 0;
$got = $settled = $bytes = 0;
$worker = null;
$handle = static function (Batch $batch) use ($records, &$began, &$cpu, &$got, &$bytes, &$worker): void {
    if ($began === 0) {
        [$began, $cpu] = [hrtime(true), cpu()];
    }
    foreach ($batch as $record) {
        $bytes += strlen((string) $record->value);
    }
    $got += count($batch);
    if ($got >= (int) $records) {
        $worker->drain();
    }
};
$answered = static function (Batch $batch, SettleResult $result) use (&$settled, &$ended): void {
    $settled += $result->isSettled() ? count($batch) : 0;
    $ended = hrtime(true);
};
$worker = new Worker($subscription, $handle, new Options(onResult: $answered));
$worker->run();
echo json_encode([
    'records' => $settled,
    'bytes' => $bytes,
    'seconds' => ($ended - $began) / 1e9,
    'cpu_seconds' => cpu() - $cpu,
]), "\n";
