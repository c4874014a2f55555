<?php

declare(strict_types=1);

namespace Offramp\Grpc;

/**
 * How a client proves who it is, and whom it trusts. What is not given comes from the environment: OFFRAMP_TOKEN,
 * OFFRAMP_TOKEN_FILE, OFFRAMP_CA, OFFRAMP_CERTIFICATE, OFFRAMP_KEY, OFFRAMP_SERVER_NAME.
 *
 * @internal
 */
final class Proof
{
    private const NO_TOKEN = 'that is not a token: one line of printable ASCII without spaces';

    /** of a file: the one that was read last */
    private ?string $token;
    private readonly ?string $tokenFile;
    /** why the file gave no token when it was read last */
    private ?string $trouble = null;
    private readonly ?string $ca;
    private readonly ?string $certificate;
    private readonly ?string $key;
    public readonly ?string $serverName;

    /**
     * @param (\Closure(string): void)|null $warn called with a sentence when a token file gives no token any more
     * @throws \InvalidArgumentException which names the option, for a file that cannot be read
     */
    public function __construct(
        #[\SensitiveParameter] ?string $token = null,
        ?string $tokenFile = null,
        ?string $ca = null,
        ?string $certificate = null,
        ?string $key = null,
        ?string $serverName = null,
        private readonly ?\Closure $warn = null,
    ) {
        $said = $token ?? $tokenFile;
        $token ??= $said === null ? self::environment('OFFRAMP_TOKEN') : null;
        $this->tokenFile = $token === null ? $tokenFile ?? self::environment('OFFRAMP_TOKEN_FILE') : null;
        $this->ca = $ca ?? self::environment('OFFRAMP_CA');
        $this->certificate = $certificate ?? self::environment('OFFRAMP_CERTIFICATE');
        $this->key = $key ?? self::environment('OFFRAMP_KEY');
        $this->serverName = $serverName ?? self::environment('OFFRAMP_SERVER_NAME');
        if (($this->certificate === null) !== ($this->key === null)) {
            throw new \InvalidArgumentException('key: a certificate and its key go together; give both, or neither');
        }
        foreach (['ca' => $this->ca, 'certificate' => $this->certificate, 'key' => $this->key] as $option => $file) {
            if ($file !== null && !is_readable($file)) {
                throw new \InvalidArgumentException("$option: $file cannot be read");
            }
        }
        if ($token !== null && !self::isToken($token)) {
            throw new \InvalidArgumentException('token: ' . self::NO_TOKEN);
        }
        $this->token = $this->tokenFile === null ? $token : self::read($this->tokenFile);
    }

    /** Somebody is to be trusted, or wants to be: so it is TLS, whatever the address. */
    public function asksForTls(): bool
    {
        return $this->ca !== null || $this->certificate !== null;
    }

    /**
     * What a call carries to prove who makes it; null without a token. A file is read each time, so that it may be
     * rotated. One that has no token just now, as while it is written, leaves the last one in use.
     */
    public function header(): ?string
    {
        if ($this->tokenFile !== null) {
            try {
                $this->token = self::read($this->tokenFile);
                $this->trouble = null;
            } catch (NoToken $error) {
                if ($this->trouble === null && $this->warn !== null) {
                    ($this->warn)("{$error->getMessage()}; going on with the token that it had before");
                }
                $this->trouble = $error->getMessage();
            }
        }
        return $this->token === null ? null : "authorization: Bearer $this->token";
    }

    /** Why the last header has an old token: its file gave none. Null if it is the token of now. */
    public function trouble(): ?string
    {
        return $this->trouble;
    }

    /** @return array<int, mixed> options of a curl handle */
    public function tlsOptions(): array
    {
        $options = [CURLOPT_SSL_VERIFYPEER => true, CURLOPT_SSL_VERIFYHOST => 2];
        if ($this->ca !== null) {
            $options[CURLOPT_CAINFO] = $this->ca;
        }
        if ($this->certificate !== null) {
            $options[CURLOPT_SSLCERT] = $this->certificate;
            $options[CURLOPT_SSLKEY] = $this->key;
        }
        return $options;
    }

    /** Whoever dumps this must not dump a token. */
    public function __debugInfo(): array
    {
        return ['ca' => $this->ca, 'certificate' => $this->certificate, 'serverName' => $this->serverName];
    }

    /** @throws NoToken */
    private static function read(string $file): string
    {
        // It may vanish at any moment, so nobody looks first; that it cannot be read is said below.
        $content = @file_get_contents($file);
        if ($content === false) {
            throw new NoToken("tokenFile: $file cannot be read");
        }
        $token = strtok(trim($content), "\r\n \t");
        if ($token === false || !self::isToken($token)) {
            throw new NoToken("tokenFile: $file: " . self::NO_TOKEN);
        }
        return $token;
    }

    private static function isToken(string $text): bool
    {
        return preg_match('/^[\x21-\x7e]+$/D', $text) === 1;
    }

    private static function environment(string $name): ?string
    {
        $value = getenv($name);
        return $value === false || $value === '' ? null : $value;
    }
}
