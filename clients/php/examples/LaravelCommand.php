<?php

declare(strict_types=1);

// For Laravel: app/Console/Commands/ConsumeOrders.php, then `php artisan orders:consume --processes=8`.

namespace App\Console\Commands;

use Illuminate\Console\Command;
use Illuminate\Support\Facades\DB;
use Offramp\Batch;
use Offramp\Options;
use Offramp\Pool;
use Offramp\Worker;

final class ConsumeOrders extends Command
{
    protected $signature = 'orders:consume {--processes=1} {--max-batches=1000}';

    protected $description = 'Handle orders from the broker';

    public function handle(): int
    {
        $make = function (): Worker {
            // After the fork: a connection of the parent must not be used by several children.
            DB::purge();
            return new Worker(
                'orders',
                $this->handleBatch(...),
                new Options(logger: logger()),
                maxBatches: (int) $this->option('max-batches'),
            );
        };

        return (new Pool($make, (int) $this->option('processes'), logger: logger()))->run();
    }

    private function handleBatch(Batch $batch): void
    {
        DB::transaction(function () use ($batch): void {
            foreach ($batch as $record) {
                // The id is the same at every delivery, so a duplicate does no harm.
                DB::table('orders')->insertOrIgnore(['id' => $record->id(), 'body' => $record->value]);
            }
        });
    }
}
