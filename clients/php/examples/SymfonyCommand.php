<?php

declare(strict_types=1);

// For Symfony: src/Command/ConsumeOrdersCommand.php, then `bin/console orders:consume`. One process; run several with
// systemd, supervisord or Kubernetes, or use Offramp\Pool as in the example for Laravel.

namespace App\Command;

use App\Orders;
use Offramp\Batch;
use Offramp\Options;
use Offramp\Worker;
use Psr\Log\LoggerInterface;
use Symfony\Component\Console\Attribute\AsCommand;
use Symfony\Component\Console\Command\Command;
use Symfony\Component\Console\Input\InputInterface;
use Symfony\Component\Console\Output\OutputInterface;

#[AsCommand(name: 'orders:consume', description: 'Handle orders from the broker')]
final class ConsumeOrdersCommand extends Command
{
    public function __construct(private readonly Orders $orders, private readonly LoggerInterface $logger)
    {
        parent::__construct();
    }

    protected function execute(InputInterface $input, OutputInterface $output): int
    {
        $handler = function (Batch $batch): void {
            foreach ($batch as $record) {
                $this->orders->place($record->id(), (string) $record->value);
            }
        };
        // SIGTERM ends it after the current batch.
        (new Worker('orders', $handler, new Options(logger: $this->logger), memoryLimit: 128 << 20))->run();

        return Command::SUCCESS;
    }
}
