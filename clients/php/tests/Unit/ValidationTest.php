<?php

declare(strict_types=1);

namespace Offramp\Tests\Unit;

use Offramp\Consumer;
use Offramp\Grpc\Address;
use Offramp\Grpc\ConnectionFailed;
use Offramp\Internal\Utf8;
use Offramp\Internal\Outcome;
use Offramp\Options;
use Offramp\Publisher;
use Offramp\Reject;
use Offramp\V1\Outcome as WireOutcome;
use Offramp\Worker;
use PHPUnit\Framework\TestCase;

/** Addresses, options and reasons: which are valid, and the errors for the others. */
final class ValidationTest extends TestCase
{
    /** @dataProvider addresses */
    public function testAnAddressIsParsed(string $text, string $path, string $url): void
    {
        $address = Address::of($text);
        self::assertSame([$path, $url], [$address->path, $address->url]);
    }

    /** @return iterable<array{string, string, string}> */
    public static function addresses(): iterable
    {
        yield ['/run/s', '/run/s', 'http://localhost'];
        yield ['unix:/run/s', '/run/s', 'http://localhost'];
        yield ['unix:///run/s', '/run/s', 'http://localhost'];
        yield ['unix:s', 's', 'http://localhost'];
        yield ['127.0.0.1:4770', '', 'http://127.0.0.1:4770'];
        yield ['[::1]:4770', '', 'http://[::1]:4770'];
    }

    /** @dataProvider wrongAddresses */
    public function testAnInvalidAddressIsNamed(string $text): void
    {
        $this->expectException(\InvalidArgumentException::class);
        $this->expectExceptionMessage($text);
        Address::of($text);
    }

    /** @return iterable<array{string}> */
    public static function wrongAddresses(): iterable
    {
        yield ['localhost'];
        yield ['http://localhost:4770'];
        yield ['unix:'];
        yield ['host:port'];
    }

    public function testTheAddressMayComeFromTheEnvironment(): void
    {
        putenv('OFFRAMP_ADDRESS=/from/environment');
        try {
            self::assertSame('/from/environment', Address::of(null)->path);
            self::assertSame('/given', Address::of('/given')->path);
        } finally {
            putenv('OFFRAMP_ADDRESS');
        }
        self::assertSame('/run/offramp/offramp.sock', Address::of(null)->path);
    }

    public function testAConnectionErrorIsOneSentenceThatSaysWhatToDo(): void
    {
        $refused = new ConnectionFailed('refused', unsent: true);
        self::assertStringContainsString('no socket at /none: start the sidecar', Address::of('/none')->explain($refused));
        self::assertStringContainsString('is not a socket', Address::of(__FILE__)->explain($refused));
        self::assertStringContainsString('at [::1]:1 (refused): start', Address::of('[::1]:1')->explain($refused));
        $reset = new ConnectionFailed('reset');
        self::assertStringContainsString('at 127.0.0.1:1 broke (reset)', Address::of('127.0.0.1:1')->explain($reset));
        self::assertStringContainsString('there is no socket at /none', Address::of('/none')->explain($reset));
    }

    /** @dataProvider wrongOptions */
    public function testAnInvalidOptionIsNamed(string $name, \Closure $use): void
    {
        $this->expectException(\InvalidArgumentException::class);
        $this->expectExceptionMessage($name);
        $use();
    }

    /** @return iterable<array{string, \Closure}> */
    public static function wrongOptions(): iterable
    {
        yield ['lease', static fn () => new Options(lease: 0)];
        yield ['resume', static fn () => new Options(resume: -1.0)];
        yield ['maxMessageBytes', static fn () => new Options(maxMessageBytes: 1)];
        yield ['patience', static fn () => new Options(patience: -1)];
        yield ['subscription', static fn () => new Consumer('')];
        yield ['subscription', static fn () => new Worker('', print_r(...))];
        yield ['maxBatches', static fn () => new Worker('a', print_r(...), maxBatches: 0)];
        yield ['memoryLimit', static fn () => new Worker('a', print_r(...), memoryLimit: 0)];
        yield ['prefetch', static fn () => new Worker('a', print_r(...), prefetch: -1)];
        yield ['either subscription', static fn () => new Publisher()];
        yield ['either subscription', static fn () => new Publisher('a', 'b')];
    }

    public function testAReasonIsTheExceptionAndItsMessage(): void
    {
        self::assertSame('RuntimeException: no', Outcome::fromException(new \RuntimeException('no'))->reason);
        self::assertSame('LogicException', Outcome::fromException(new \LogicException())->reason);
        $outcome = Outcome::fromException(new Reject('bad'));
        self::assertSame([WireOutcome::OUTCOME_REJECT, 'bad'], [$outcome->kind, $outcome->reason]);
    }

    /** @dataProvider texts */
    public function testAReasonIsValidTextOfLimitedLength(string $text, int $most, string $clean): void
    {
        self::assertSame($clean, Utf8::clean($text, $most));
    }

    /** @return iterable<array{string, int, string}> */
    public static function texts(): iterable
    {
        yield ['plain', 10, 'plain'];
        yield ['plain', 3, 'pla'];
        yield ['grün', 4, 'grü'];
        yield ['grün', 3, 'gr'];
        yield ["a\xffb\xfcc", 10, 'a?b?c'];
        yield ["\xe2\x82", 10, '??'];
        yield ['€€', 4, '€'];
        yield [str_repeat('😀', 1_000), 1_024, str_repeat('😀', 256)];
        yield [str_repeat("\xff", 2_000), 1_024, str_repeat('?', 1_024)];
    }
}
