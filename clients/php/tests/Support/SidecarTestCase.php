<?php

declare(strict_types=1);

namespace Offramp\Tests\Support;

use Offramp\Batch;
use Offramp\Consumer;
use Offramp\Options;
use Offramp\Publisher;
use Offramp\V1\GetStatusRequest;
use Offramp\V1\GetStatusResponse;
use Offramp\V1\SubscriptionStatus;
use Offramp\Grpc\Address;
use Offramp\Grpc\Channel;
use PHPUnit\Framework\TestCase;

/** Tests with a real sidecar, one for each class; each test has a subscription that is named after it. */
abstract class SidecarTestCase extends TestCase
{
    protected static Sidecar $sidecar;
    protected string $subscription;

    public static function setUpBeforeClass(): void
    {
        $subscriptions = [];
        foreach (get_class_methods(static::class) as $method) {
            if (str_starts_with($method, 'test')) {
                $subscriptions[$method] = ['batch' => ['records' => 1]];
            }
        }
        self::$sidecar = (new Sidecar($subscriptions))->start();
        putenv('OFFRAMP_ADDRESS=unix:' . self::$sidecar->socket);
    }

    public static function tearDownAfterClass(): void
    {
        self::$sidecar->stop();
        putenv('OFFRAMP_ADDRESS');
    }

    protected function setUp(): void
    {
        $this->subscription = $this->getName(false);
    }

    protected function consumer(mixed ...$options): Consumer
    {
        return new Consumer($this->subscription, new Options(...$options));
    }

    protected function publish(string ...$values): void
    {
        $publisher = new Publisher(subscription: $this->subscription);
        foreach ($values as $value) {
            $publisher->publish($this->subscription, $value, lane: 0);
        }
    }

    /** Publishes, and waits until the sidecar has fetched everything, so that one call can return several batches. */
    protected function publishAndBuffer(string ...$values): void
    {
        $this->publish(...$values);
        Sidecar::eventually(
            fn(): bool => (int) $this->status()->getBufferedRecords() === count($values),
            'the sidecar has fetched what was published',
        );
    }

    protected function take(Consumer $consumer): Batch
    {
        $batch = $consumer->take(Sidecar::TIMEOUT);
        self::assertNotNull($batch, 'no batch arrived');
        return $batch;
    }

    protected function status(): SubscriptionStatus
    {
        $request = new GetStatusRequest(['subscription' => $this->subscription]);
        $channel = new Channel(Address::of(null));
        $response = new GetStatusResponse();
        $response->mergeFromString($channel->call('AdminService/GetStatus', $request->serializeToString(), 10.0));
        return $response->getStatus()->getSubscriptions()[0];
    }

    /** Waits until the sidecar's counters have these values. */
    protected function awaitCounters(int ...$expected): void
    {
        $seen = [];
        Sidecar::eventually(
            function () use ($expected, &$seen): bool {
                $counters = $this->status()->getCounters();
                foreach ($expected as $name => $_) {
                    $seen[$name] = (int) $counters->{'get' . ucfirst($name)}();
                }
                return $seen == $expected;
            },
            static function () use ($expected, &$seen): string {
                return 'the sidecar counts ' . json_encode($expected) . ' instead of ' . json_encode($seen);
            },
        );
        self::assertEquals($expected, $seen);
    }
}
