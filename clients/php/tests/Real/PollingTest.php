<?php

declare(strict_types=1);

namespace Offramp\Tests\Real;

use Offramp\Batch;
use Offramp\Tests\Kit\Logger;
use Offramp\Tests\Kit\RealTestCase;
use Offramp\Tests\Kit\Sidecar;

/** A consumer that asks again and again, and never waits. */
final class PollingTest extends RealTestCase
{
    public function testOneWhoPollsWithoutWaitingGetsBatches(): void
    {
        $this->publish('1');
        $consumer = $this->consumer();
        $batch = Sidecar::eventually(static fn (): ?Batch => $consumer->take(0), 'a batch comes');
        self::assertSame('1', $batch[0]->value);
        self::assertNull($consumer->take(0));
    }

    public function testAMissingSidecarIsLookedForAlsoByOneWhoDoesNotWait(): void
    {
        $logger = new Logger();
        $consumer = $this->consumer(address: '/no/such/socket', logger: $logger);
        self::assertNull($consumer->take(0));
        self::assertStringContainsString('there is no socket at /no/such/socket', $logger->lines[0]);
    }
}
