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
    private readonly ?string $token;
    private readonly ?string $tokenFile;
    private readonly ?string $ca;
    private readonly ?string $certificate;
    private readonly ?string $key;
    public readonly ?string $serverName;

    /** @throws \InvalidArgumentException which names the option, for a file that cannot be read */
    public function __construct(
        #[\SensitiveParameter] ?string $token = null,
        ?string $tokenFile = null,
        ?string $ca = null,
        ?string $certificate = null,
        ?string $key = null,
        ?string $serverName = null,
    ) {
        $said = $token ?? $tokenFile;
        $this->token = $token ?? ($said === null ? self::environment('OFFRAMP_TOKEN') : null);
        $this->tokenFile = $tokenFile ?? ($this->token === null ? self::environment('OFFRAMP_TOKEN_FILE') : null);
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
        $this->header();
    }

    /** Somebody is to be trusted, or wants to be: so it is TLS, whatever the address. */
    public function asksForTls(): bool
    {
        return $this->ca !== null || $this->certificate !== null;
    }

    /**
     * What a call carries to prove who makes it; null without a token. A file is read each time, so that it may be rotated.
     *
     * @throws \InvalidArgumentException
     */
    public function header(): ?string
    {
        $token = $this->token;
        $source = 'token';
        if ($token === null && $this->tokenFile !== null) {
            $source = "tokenFile: $this->tokenFile";
            $content = is_readable($this->tokenFile) ? file_get_contents($this->tokenFile) : false;
            if ($content === false) {
                throw new \InvalidArgumentException("$source cannot be read");
            }
            $token = strtok(trim($content), "\r\n \t");
        }
        if ($token === null) {
            return null;
        }
        if ($token === false || preg_match('/^[\x21-\x7e]+$/D', $token) !== 1) {
            throw new \InvalidArgumentException(
                "$source: that is not a token: one line of printable ASCII without spaces"
            );
        }
        return "authorization: Bearer $token";
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

    private static function environment(string $name): ?string
    {
        $value = getenv($name);
        return $value === false || $value === '' ? null : $value;
    }
}
