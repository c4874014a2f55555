<?php

declare(strict_types=1);

namespace Offramp\Tests\Integration;

use Offramp\Exception\InvalidRequest;
use Offramp\Exception\NotFound;
use Offramp\Exception\Unavailable;
use Offramp\Header;
use Offramp\Message;
use Offramp\Publisher;
use Offramp\Tests\Support\SidecarTestCase;

final class PublisherTest extends SidecarTestCase
{
    public function testHeadersAreGivenByNameOrAsObjects(): void
    {
        $publisher = new Publisher(broker: 'local');
        $publisher->publish($this->subscription, 'v', 'k', ['a' => '1', 'b' => null]);
        $publisher->publish($this->subscription, null, '', [new Header('a', '1'), new Header('a', '')]);
        $consumer = $this->consumer();
        $seen = [];
        for ($count = 0; $count < 2; $count++) {
            $record = $this->take($consumer)[0];
            $headers = array_map(static fn (Header $one) => [$one->name, $one->value], $record->headers);
            $seen[(string) $record->value] = [$record->key, $record->value, $headers, $record->header('a')];
        }
        self::assertSame(['k', 'v', [['a', '1'], ['b', null]], '1'], $seen['v']);
        self::assertSame(['', null, [['a', '1'], ['a', '']], ''], $seen['']);
    }

    public function testManyMessagesGoInOneCallAndKeepTheirOrder(): void
    {
        $publisher = new Publisher(subscription: $this->subscription);
        $messages = (static function (): iterable {
            for ($number = 0; $number < 50; $number++) {
                yield new Message((string) $number, lane: 2, timestampMs: 1_000 + $number);
            }
        })();
        $places = $publisher->publishMany($this->subscription, $messages);
        self::assertSame(range(0, 49), array_map(static fn ($place) => $place->position, $places));
        self::assertSame([2], array_values(array_unique(array_map(static fn ($place) => $place->lane, $places))));
        self::assertSame(1_000, $this->take($this->consumer())[0]->timestampMs);
    }

    public function testABrokerThatIsNotThereIsNamedWithThoseThatAre(): void
    {
        $this->expectException(NotFound::class);
        $this->expectExceptionMessage('local');
        (new Publisher(broker: 'lokal'))->publish('topic', 'v');
    }

    public function testWhatTheSidecarCanNeverTakeIsRefused(): void
    {
        $this->expectException(InvalidRequest::class);
        (new Publisher(broker: 'local'))->publish('', 'v');
    }

    public function testARequestThatTheSidecarCanNeverTakeIsRefused(): void
    {
        $publisher = new Publisher(broker: 'local');
        foreach ([5 << 20, (4 << 20) + 1, 32 << 20] as $size) {
            try {
                $publisher->publish($this->subscription, str_repeat('x', $size));
                self::fail('the sidecar takes 4 MiB at the most');
            } catch (InvalidRequest $error) {
                self::assertStringContainsString('listen.max_request_bytes', $error->getMessage());
                self::assertStringContainsString('publish fewer or smaller messages at a time', $error->getMessage());
            }
        }
        self::assertSame(0, $publisher->publish($this->subscription, 'small', lane: 0)->position);
    }

    public function testAMissingSidecarIsWaitedForAndThenNamed(): void
    {
        $began = microtime(true);
        try {
            (new Publisher(broker: 'local', address: '/no/such/socket', timeout: 0.3))->publish('topic', 'v');
            self::fail('there is no sidecar');
        } catch (Unavailable $error) {
            self::assertStringContainsString('there is no socket at /no/such/socket', $error->getMessage());
            self::assertGreaterThanOrEqual(0.3, microtime(true) - $began);
        }
    }

    public function testAPublisherOutlivesItsSidecar(): void
    {
        $publisher = new Publisher(broker: 'local');
        self::assertSame(0, $publisher->publish($this->subscription, '1', lane: 0)->position);
        self::$sidecar->kill();
        self::$sidecar->start();
        self::assertSame(1, $publisher->publish($this->subscription, '2', lane: 0)->position);
        self::assertSame(2, $publisher->publish($this->subscription, '3', lane: 0)->position);
    }
}
