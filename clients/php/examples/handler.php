<?php

declare(strict_types=1);

// Several processes: bin/offramp-worker --subscription orders --processes 8 examples/handler.php

use Offramp\Batch;

// This file is loaded after the fork: each process has its own of whatever is opened here.
$count = 0;

return function (Batch $batch) use (&$count): void {
    $count += count($batch);
    fprintf(STDERR, "process %d has done %d\n", getmypid(), $count);
};
