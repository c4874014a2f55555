<?php

declare(strict_types=1);

namespace Offramp\Grpc;

/**
 * The client's token and certificate, and the authorities it trusts. What is not given comes from the environment:
 * OFFRAMP_TOKEN, OFFRAMP_TOKEN_FILE, OFFRAMP_CA, OFFRAMP_CERTIFICATE, OFFRAMP_KEY, OFFRAMP_SERVER_NAME.
 *
 * @internal
 */
final class Credentials
{
    private const NO_TOKEN = 'that is not a token: one line of printable ASCII without spaces';

    /** the one given, or the last one read from the file */
    private ?string $token;
    private readonly ?string $tokenFile;
    /** why the last read of the file gave no token */
    private ?string $tokenFileError = null;
    private readonly ?string $ca;
    private readonly ?string $certificate;
    private readonly ?string $key;
    public readonly ?string $serverName;

    /**
     * @param (\Closure(string): void)|null $warn logs a warning when a token file no longer gives a token
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
        $token ??= $tokenFile === null ? self::environment('OFFRAMP_TOKEN') : null;
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

    /** Whether to use TLS for any address: authorities or a client certificate are given. */
    public function requireTls(): bool
    {
        return $this->ca !== null || $this->certificate !== null;
    }

    /**
     * The authorization header of a call; null without a token. A file is read each time, so that it can be rotated. If
     * it has no token at the moment, for example while it is written, the last one stays in use.
     */
    public function header(): ?string
    {
        if ($this->tokenFile !== null) {
            try {
                $this->token = self::read($this->tokenFile);
                $this->tokenFileError = null;
            } catch (TokenFileError $error) {
                if ($this->tokenFileError === null && $this->warn !== null) {
                    ($this->warn)("{$error->getMessage()}; still using the token that it had before");
                }
                $this->tokenFileError = $error->getMessage();
            }
        }
        return $this->token === null ? null : "authorization: Bearer $this->token";
    }

    /** Why the last header has an earlier token, since its file gave none. Null if the token is current. */
    public function tokenFileError(): ?string
    {
        return $this->tokenFileError;
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

    /** Keeps the token out of dumps. */
    public function __debugInfo(): array
    {
        return ['ca' => $this->ca, 'certificate' => $this->certificate, 'serverName' => $this->serverName];
    }

    /** @throws TokenFileError */
    private static function read(string $file): string
    {
        // No check first, since it may vanish at any moment; the exception below replaces PHP's warning.
        $content = @file_get_contents($file);
        if ($content === false) {
            throw new TokenFileError("tokenFile: $file cannot be read");
        }
        $token = strtok(trim($content), "\r\n \t");
        if ($token === false || !self::isToken($token)) {
            throw new TokenFileError("tokenFile: $file: " . self::NO_TOKEN);
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
