<?php

// What the processes of benchmarks/suites/clients.py do: 5 ms of waiting for each batch.

declare(strict_types=1);

return static function (Offramp\Batch $batch): void {
    usleep(5_000);
};
