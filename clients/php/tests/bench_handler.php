<?php

// The handler of the processes of benchmarks/suites/clients.py: waits 5 ms for each batch.

declare(strict_types=1);

return static function (Offramp\Batch $batch): void {
    usleep(5_000);
};
