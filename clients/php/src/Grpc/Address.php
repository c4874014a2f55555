<?php

declare(strict_types=1);

namespace Offramp\Grpc;

use Offramp\Protocol;

/**
 * Where the sidecar is: `unix:/path`, `/path` or `host:port`.
 *
 * @internal
 */
final class Address
{
    private function __construct(
        /** as people write it */
        public readonly string $text,
        /** empty: not a unix socket */
        public readonly string $path,
        public readonly string $url,
    ) {
    }

    /** @throws \InvalidArgumentException */
    public static function of(?string $address): self
    {
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
            return new self($address, $path, 'http://localhost');
        }
        if (preg_match('/^(\[[0-9a-fA-F:.]+\]|[^:\/\s]+):([0-9]{1,5})$/', $address) !== 1) {
            throw new \InvalidArgumentException("address: \"$address\" is neither unix:/path nor host:port");
        }
        return new self($address, '', "http://$address");
    }

    /** Why there is no answer from here, and what to do, in one sentence. */
    public function explain(Broken $broken): string
    {
        $error = $broken->getMessage();
        $say = 'say where the sidecar is with OFFRAMP_ADDRESS or the option "address"';
        $start = "start the sidecar there (offramp run), or $say";
        if (!$broken->unsent && ($this->path === '' || file_exists($this->path))) {
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
