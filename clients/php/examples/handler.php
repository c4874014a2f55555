<?php

declare(strict_types=1);

// Several processes: bin/offramp-worker --subscription orders --processes 8 examples/handler.php

use Offramp\Batch;

// What is opened here, each process has for itself: this file is loaded after the fork.
$count = 0;

return function (Batch $batch) use (&$count): void {
    $count += count($batch);
    fprintf(STDERR, "process %d has done %d\n", getmypid(), $count);
};
