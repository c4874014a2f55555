<?php

declare(strict_types=1);

namespace Offramp\Tests\Integration;

use Offramp\Batch;
use Offramp\Tests\Support\Logger;
use Offramp\Tests\Support\SidecarTestCase;
use Offramp\Tests\Support\Sidecar;

/** A consumer that polls and never waits. */
final class PollingTest extends SidecarTestCase
{
    public function testPollingWithoutWaitingReturnsBatches(): void
    {
        $this->publish('1');
        $consumer = $this->consumer();
        $batch = Sidecar::eventually(static fn (): ?Batch => $consumer->take(0), 'a batch comes');
        self::assertSame('1', $batch[0]->value);
        self::assertNull($consumer->take(0));
    }

    public function testPollingWithoutWaitingConnectsAndReportsAMissingSidecar(): void
    {
        $logger = new Logger();
        $consumer = $this->consumer(address: '/no/such/socket', logger: $logger);
        self::assertNull($consumer->take(0));
        self::assertStringContainsString('there is no socket at /no/such/socket', $logger->lines[0]);
    }
}
