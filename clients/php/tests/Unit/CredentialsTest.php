<?php

declare(strict_types=1);

namespace Offramp\Tests\Unit;

use Offramp\Grpc\Address;
use Offramp\Grpc\Credentials;
use Offramp\Options;
use Offramp\Publisher;
use Offramp\Tests\Support\Logger;
use PHPUnit\Framework\TestCase;

/** Tokens and certificates, without a sidecar. */
final class CredentialsTest extends TestCase
{
    private string $file;

    protected function setUp(): void
    {
        $this->file = (string) tempnam(sys_get_temp_dir(), 'offramp');
    }

    protected function tearDown(): void
    {
        @unlink($this->file);
        foreach (['TOKEN', 'TOKEN_FILE', 'CA', 'SERVER_NAME'] as $name) {
            putenv("OFFRAMP_$name");
        }
    }

    /** @dataProvider addresses */
    public function testOnlyLoopbackIsUnencrypted(string $address, string $url): void
    {
        self::assertSame($url, Address::of($address)->url);
        self::assertSame(str_starts_with($url, 'https:'), Address::of($address)->tls);
    }

    /** @return iterable<array{string, string}> */
    public static function addresses(): iterable
    {
        yield ['/run/s', 'http://localhost'];
        yield ['127.0.0.1:4770', 'http://127.0.0.1:4770'];
        yield ['localhost:4770', 'http://localhost:4770'];
        yield ['[::1]:4770', 'http://[::1]:4770'];
        yield ['10.0.0.1:4770', 'https://10.0.0.1:4770'];
        yield ['127.0.0.1.example:4770', 'https://127.0.0.1.example:4770'];
        yield ['[fd00::1]:4770', 'https://[fd00::1]:4770'];
        yield ['sidecar.shop:4770', 'https://sidecar.shop:4770'];
    }

    public function testALoopbackAddressIsTlsIfAuthoritiesAreGiven(): void
    {
        self::assertTrue(Address::of('127.0.0.1:1', new Credentials(ca: $this->file))->tls);
        self::assertFalse(Address::of('/run/s', new Credentials(ca: $this->file))->tls);
    }

    public function testTheNameOfTheCertificateMayDifferFromTheAddress(): void
    {
        $address = Address::of('10.0.0.1:4770', new Credentials(serverName: 'sidecar'));
        self::assertSame('https://sidecar:4770', $address->url);
        self::assertSame(['sidecar:4770:10.0.0.1:4770'], $address->curlOptions()[CURLOPT_CONNECT_TO]);
    }

    public function testATokenFileIsReadEachTime(): void
    {
        file_put_contents($this->file, "\nold\nolder\n");
        $credentials = new Credentials(tokenFile: $this->file);
        self::assertSame('authorization: Bearer old', $credentials->header());
        file_put_contents($this->file, 'new');
        self::assertSame('authorization: Bearer new', $credentials->header());
    }

    /** @dataProvider filesWithoutAToken */
    public function testAFileThatHasNoTokenForAMomentLeavesTheLastOneInUse(?string $content): void
    {
        file_put_contents($this->file, 'old');
        $logger = new Logger();
        $credentials = (new Options(tokenFile: $this->file, logger: $logger))->to->credentials;
        for ($outage = 1; $outage <= 2; $outage++) {
            $content === null ? unlink($this->file) : file_put_contents($this->file, $content);
            self::assertSame('authorization: Bearer old', $credentials->header());
            self::assertSame('authorization: Bearer old', $credentials->header());
            self::assertCount($outage, $logger->lines, 'it is said once each time');
            self::assertStringContainsString("warning: tokenFile: $this->file", $logger->lines[$outage - 1]);
            file_put_contents($this->file, 'old');
            $credentials->header();
        }
        file_put_contents($this->file, 'new');
        self::assertSame('authorization: Bearer new', $credentials->header());
        self::assertNull($credentials->tokenFileError());
    }

    /** @dataProvider filesWithoutAToken */
    public function testAFileThatHasNoTokenFromTheBeginningIsRefused(?string $content): void
    {
        $content === null ? unlink($this->file) : file_put_contents($this->file, $content);
        $this->expectException(\InvalidArgumentException::class);
        $this->expectExceptionMessage("tokenFile: $this->file");
        new Options(tokenFile: $this->file);
    }

    /** @return iterable<string, array{?string}> */
    public static function filesWithoutAToken(): iterable
    {
        yield 'gone' => [null];
        yield 'empty' => [''];
        yield 'blank' => [" \n"];
        yield 'binary' => ["\x01\x02"];
    }

    public function testOptionsTakePrecedenceOverTheEnvironment(): void
    {
        self::assertNull((new Credentials())->header());
        putenv('OFFRAMP_TOKEN=environment');
        self::assertSame('authorization: Bearer environment', (new Credentials())->header());
        self::assertSame('authorization: Bearer said', (new Credentials(token: 'said'))->header());
        file_put_contents($this->file, 'file');
        self::assertSame('authorization: Bearer file', (new Credentials(tokenFile: $this->file))->header());
    }

    /** @dataProvider invalidCredentials */
    public function testInvalidCredentialsAreRefusedWithTheNameOfTheOption(string $message, \Closure $use): void
    {
        $this->expectException(\InvalidArgumentException::class);
        $this->expectExceptionMessage($message);
        $use();
    }

    /** @return iterable<array{string, \Closure}> */
    public static function invalidCredentials(): iterable
    {
        yield ['token: that is not a token', static fn () => new Options(token: 'two words')];
        yield ['token: that is not a token', static fn () => new Options(token: '')];
        yield ['tokenFile: /nowhere cannot be read', static fn () => new Options(tokenFile: '/nowhere')];
        yield ['ca: /nowhere cannot be read', static fn () => new Publisher(broker: 'local', ca: '/nowhere')];
        yield ['key: a certificate and its key', static fn () => new Options(certificate: __FILE__)];
    }

    public function testADumpDoesNotShowTheToken(): void
    {
        self::assertStringNotContainsString('s3cret', print_r(new Options(token: 's3cret'), true));
    }
}
