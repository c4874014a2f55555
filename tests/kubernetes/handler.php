<?php

// What the pod of the PHP example does with records: it notes what happens, one line each, in a file that all processes
// append to. A record says what to do with it: `hang` hangs at its first delivery, `slow-*` takes its time.

use Offramp\Batch;

function note(string ...$words): void
{
    file_put_contents('/journal/journal', implode(' ', $words) . ' ' . getmypid() . "\n", FILE_APPEND | LOCK_EX);
}

function pass(float $seconds): void
{
    // A signal ends a sleep early.
    for ($until = microtime(true) + $seconds; microtime(true) < $until;) {
        usleep(1000);
    }
}

note('start', file_exists('/run/offramp/offramp.sock') ? 'with-socket' : 'without-socket');

return function (Batch $batch): void {
    foreach ($batch as $record) {
        $value = (string) $record->value;
        note('take', $value);
        if ($value === 'hang' && $record->attempt === 1) {
            pass(3600);
        }
        pass(str_starts_with($value, 'slow') ? 0.3 : 0.01);
        note('done', $value);
    }
};
