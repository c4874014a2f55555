<?php

declare(strict_types=1);

// Plain PHP, one process: php examples/plain.php

use Offramp\Batch;
use Offramp\Worker;

// With Composer: require 'vendor/autoload.php';
require __DIR__ . '/../autoload.php';

$worker = new Worker('orders', function (Batch $batch): void {
    foreach ($batch as $record) {
        $order = json_decode((string) $record->value, true);
        if (!is_array($order)) {
            $record->reject('not a JSON object');
        } elseif ($record->possiblyProcessed) {
            echo "{$record->id()} may have been done before\n";
        }
    }
    echo count($batch), " records of {$batch->topic}\n";
});

$worker->run();
