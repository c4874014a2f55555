<?php

declare(strict_types=1);

namespace Offramp\Grpc;

use Offramp\Protocol;

/**
 * Where the sidecar is: `unix:/path`, `/path` or `host:port`, and the credentials for it.
 *
 * Beyond loopback it is always TLS, so a token never leaves this machine unencrypted.
 *
 * @internal
 */
final class Address
{
    private function __construct(
        /** as the user wrote it */
        public readonly string $text,
        /** of a unix socket; else empty */
        public readonly string $path,
        public readonly string $url,
        public readonly Credentials $credentials,
        public readonly bool $tls = false,
    ) {
    }

    /** @throws \InvalidArgumentException */
    public static function of(?string $address, ?Credentials $credentials = null): self
    {
        $credentials ??= new Credentials();
        if ($address === null || $address === '') {
            $environment = getenv('OFFRAMP_ADDRESS');
            $address = $environment === false || $environment === '' ? Protocol::DEFAULT_ADDRESS : $environment;
        }
        if (str_starts_with($address, '/')) {
            $address = "unix:$address";
        }
        if (str_starts_with($address, 'unix:')) {
            $path = preg_replace('#^//(?=/)#', '', substr($address, 5)) ?? '';
            if ($path === '') {
                throw new \InvalidArgumentException("address: \"$address\" names no socket; write unix:/the/path");
            }
            return new self($address, $path, 'http://localhost', $credentials);
        }
        if (preg_match('/^(\[[0-9a-fA-F:.]+\]|[^:\/\s]+):([0-9]{1,5})$/', $address) !== 1) {
            throw new \InvalidArgumentException("address: \"$address\" is neither unix:/path nor host:port");
        }
        $tls = $credentials->requireTls() || !self::isLoopback($address);
        if (!$tls) {
            return new self($address, '', "http://$address", $credentials);
        }
        $port = substr($address, (int) strrpos($address, ':'));
        $name = $credentials->serverName === null ? $address : $credentials->serverName . $port;
        return new self($address, '', "https://$name", $credentials, true);
    }

    /** @return array<int, mixed> options of a curl handle for this address */
    public function curlOptions(): array
    {
        if ($this->path !== '') {
            return [CURLOPT_UNIX_SOCKET_PATH => $this->path];
        }
        if (!$this->tls) {
            return [];
        }
        $options = $this->credentials->tlsOptions();
        if ($this->credentials->serverName !== null) {
            // The URL has the name in the certificate; the connection goes to the address.
            $options[CURLOPT_CONNECT_TO] = [substr($this->url, strlen('https://')) . ':' . $this->text];
        }
        return $options;
    }

    private static function isLoopback(string $address): bool
    {
        $host = trim(substr($address, 0, (int) strrpos($address, ':')), '[]');
        return $host === 'localhost' || $host === '::1' || preg_match('/^127(\.[0-9]{1,3}){3}$/D', $host) === 1;
    }

    /** Why the sidecar cannot be reached, and what to do, in one sentence. */
    public function explain(ConnectionFailed $failed): string
    {
        $error = $failed->getMessage();
        $say = 'say where the sidecar is with OFFRAMP_ADDRESS or the option "address"';
        $start = "start the sidecar there (offramp run), or $say";
        if (!$failed->unsent && ($this->path === '' || file_exists($this->path))) {
            return "the connection to the sidecar at $this->text broke ($error): see its log if this goes on";
        }
        if ($this->path === '') {
            return "no sidecar answers at $this->text ($error): $start";
        }
        if (!file_exists($this->path)) {
            return "there is no socket at $this->path: $start";
        }
        if (filetype($this->path) !== 'socket') {
            return "$this->path is not a socket: $say";
        }
        if (!is_writable($this->path)) {
            return "this user may not use the socket $this->path: run as a member of its group, or change "
                . "the sidecar's listen.socket_mode";
        }
        return "no sidecar answers at $this->path ($error): $start";
    }
}
