<?php

/**
 * The same worker process in PHP: `php worker.php TARGET JOURNAL SLOW STUCK OVERDUE LEASE`. See worker.py.
 *
 * It does with records what that does, and writes the same journal.
 */

declare(strict_types=1);

use Offramp\Batch;
use Offramp\Options;
use Offramp\Record;
use Offramp\SettleResult;
use Offramp\SettleStatus;
use Offramp\Worker;

require __DIR__ . '/../../../clients/php/autoload.php';

/** seconds that a parked record asks for */
const LATER = 1.0;

[, $target, $path, $slow, $stuck, $overdue, $lease] = $argv;
$naps = ['slow' => (float) $slow, 'stuck' => (float) $stuck];
$journal = fopen($path, 'ab');
// One write for each line: it is there whole or not at all.
stream_set_write_buffer($journal, 0);

/** What the broker itself calls a record, where that is more than its position: a message id of Pulsar. */
function place(Record $record): string
{
    return $record->ref === '' ? (string) $record->position : "\"$record->ref\"";
}

/** @param list<Record> $records */
$note = function (string $word, Batch $batch, array $records) use ($journal): void {
    if ($records === []) {
        return;
    }
    $told = array_map(
        static fn (Record $r): string => sprintf(
            '[%d, %s, %d, %s, "%s"]',
            $r->lane,
            place($r),
            $r->attempt,
            $r->possiblyProcessed ? 'true' : 'false',
            $word === 'took' ? substr(sha1("$r->key\0$r->value"), 0, 12) : '',
        ),
        $records,
    );
    // The clock of the other workers: what Python calls monotonic.
    $at = hrtime(true) / 1e9;
    $lease = bin2hex($batch->lease);
    fwrite($journal, sprintf("[%.9F, \"%s\", \"%s\", [%s]]\n", $at, $word, $lease, implode(', ', $told)));
    fsync($journal);
};

/** @var array<string, list<Record>> by lease: what was acked and is not answered yet */
$open = [];

$handle = function (Batch $batch) use ($naps, $overdue, $note, &$open): void {
    $records = iterator_to_array($batch, false);
    $note('took', $batch, $records);
    $kinds = array_map(static fn (Record $r): string => explode(':', (string) $r->value)[0], $records);
    if (in_array('killer', $kinds, true)) {
        posix_kill(getmypid(), SIGKILL);
    }
    if (in_array('poison', $kinds, true)) {
        $note('nacked', $batch, $records);
        throw new RuntimeException('poison');
    }
    $said = ['rejected' => [], 'nacked' => [], 'acked' => []];
    $nap = 0.0;
    $tarries = false;
    foreach ($records as $index => $record) {
        $kind = $kinds[$index];
        $nap += $naps[$kind] ?? 0.0;
        $tarries = $tarries || ($kind === 'overdue' && $record->attempt === 1 && !$record->possiblyProcessed);
        $word = match (true) {
            $kind === 'bad' => 'rejected',
            in_array($kind, ['flaky', 'later'], true) && $record->attempt === 1 => 'nacked',
            default => 'acked',
        };
        $said[$word][] = $record;
    }
    usleep((int) (($nap + ($tarries ? (float) $overdue : 0.0)) * 1e6));
    // Before the sidecar hears of it: what it commits must be found here.
    foreach ($said as $word => $some) {
        $note($word, $batch, $some);
    }
    foreach ($said['rejected'] as $record) {
        $record->reject('no');
    }
    foreach ($said['nacked'] as $record) {
        $record->nack('no', explode(':', (string) $record->value)[0] === 'later' ? LATER : null);
    }
    $open[$batch->lease] = $said['acked'];
};

$answered = function (Batch $batch, SettleResult $result) use ($note, &$open): void {
    if ($result->status === SettleStatus::Settled) {
        $note('settled', $batch, $open[$batch->lease] ?? []);
    }
    unset($open[$batch->lease]);
};

(new Worker('orders', $handle, new Options($target, lease: (float) $lease ?: null, onResult: $answered)))->run();
