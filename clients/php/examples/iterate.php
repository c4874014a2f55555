<?php

declare(strict_types=1);

// A loop instead of a handler: php examples/iterate.php

use Offramp\Consumer;

require __DIR__ . '/../autoload.php';

$consumer = new Consumer('orders');
foreach ($consumer as $batch) {
    foreach ($batch as $record) {
        echo $record->id(), ' ', $record->value, "\n";
    }
    $result = $batch->ack();
    if (!$result->isSettled()) {
        echo "not counted: {$result->status->name} {$result->detail}\n";
    }
}
$consumer->close();
