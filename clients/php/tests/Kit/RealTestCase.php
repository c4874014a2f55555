<?php

declare(strict_types=1);

namespace Offramp\Tests\Kit;

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

/** Tests with a real sidecar, one for each class; a test takes the subscription that is named after it. */
abstract class RealTestCase extends TestCase
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

    /** Publish, and wait until the sidecar has all of it at hand, so that one call can bring several batches. */
    protected function stock(string ...$values): void
    {
        $this->publish(...$values);
        Sidecar::eventually(
            fn(): bool => (int) $this->status()->getBufferedRecords() === count($values),
            'the sidecar has fetched what was published',
        );
    }

    protected function take(Consumer $consumer): Batch
    {
        $batch = $consumer->take(Sidecar::PATIENCE);
        self::assertNotNull($batch, 'no batch came');
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

    /** The counters come to these values. */
    protected function counts(int ...$expected): void
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
