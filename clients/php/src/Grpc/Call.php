<?php

declare(strict_types=1);

namespace Offramp\Grpc;

use Offramp\Exception\ProtocolBroken;

/**
 * What is common to all calls by curl: the options of a handle, the frames of a body, the status in the trailers.
 *
 * @internal
 */
final class Call
{
    /** CURLE_HTTP2_STREAM, which PHP has no name for */
    private const STREAM_ENDED = 92;

    /** what has come of the body and was not read as a message yet */
    private string $body = '';
    private ?int $status = null;
    private string $message = '';
    private int $http = 0;
    /** why the token of this call is an old one; null: it is not */
    private ?string $tokenTrouble = null;

    public function __construct(private readonly Address $address, private readonly string $method)
    {
    }

    public static function handle(Address $address): \CurlHandle
    {
        $handle = curl_init();
        $options = [
            CURLOPT_POST => true,
            CURLOPT_NOSIGNAL => true,
            // The sidecar is in this pod or this cluster: a proxy for the world outside is not for it.
            CURLOPT_PROXY => '',
            CURLOPT_NOPROXY => '*',
            CURLOPT_CONNECTTIMEOUT_MS => 5_000,
            CURLOPT_TCP_NODELAY => true,
            // A batch in as few pieces as can be.
            CURLOPT_BUFFERSIZE => 512 << 10,
            CURLOPT_USERAGENT => 'offramp-php/' . \Offramp\Protocol::VERSION,
        ];
        curl_setopt_array($handle, $options + $address->options());
        return $handle;
    }

    /** Make the handle ready for this call. */
    public function prepare(\CurlHandle $handle, string $request, int $httpVersion, int $timeoutMs = 0): void
    {
        $headers = ['content-type: application/grpc', 'te: trailers', 'Expect:', 'Accept:'];
        if ($timeoutMs > 0) {
            $headers[] = "grpc-timeout: {$timeoutMs}m";
        }
        $proof = $this->address->proof->header();
        $this->tokenTrouble = $this->address->proof->trouble();
        if ($proof !== null) {
            $headers[] = $proof;
        }
        curl_setopt_array($handle, [
            CURLOPT_URL => "{$this->address->url}/offramp.v1.$this->method",
            // With TLS both sides agree on HTTP/2 before the first request.
            CURLOPT_HTTP_VERSION => $this->address->tls ? CURL_HTTP_VERSION_2TLS : $httpVersion,
            CURLOPT_HTTPHEADER => $headers,
            CURLOPT_POSTFIELDS => "\0" . pack('N', strlen($request)) . $request,
            // A little longer than the sidecar's own limit, whose answer says more.
            CURLOPT_TIMEOUT_MS => $timeoutMs > 0 ? $timeoutMs + 5_000 : 0,
            CURLOPT_HEADERFUNCTION => $this->header(...),
            CURLOPT_WRITEFUNCTION => $this->write(...),
        ]);
    }

    /** The next message has begun to come. */
    public function begun(): bool
    {
        return $this->body !== '';
    }

    /** The next whole message of the body, or null. */
    public function message(): ?string
    {
        if (strlen($this->body) < 5) {
            return null;
        }
        $size = unpack('N', $this->body, 1)[1];
        if (strlen($this->body) < 5 + $size) {
            return null;
        }
        if ($this->body[0] !== "\0") {
            throw new ProtocolBroken('the sidecar sent a compressed message, which nobody asked for');
        }
        $message = substr($this->body, 5, $size);
        $this->body = strlen($this->body) === 5 + $size ? '' : substr($this->body, 5 + $size);
        return $message;
    }

    /**
     * Look at the status once the call is over. `sentAll`: the whole request was.
     *
     * @throws Failure|Broken
     */
    public function check(int $curlError, string $curlMessage, bool $sentAll = true): void
    {
        if ($this->status === Code::Ok->value) {
            return;
        }
        if ($this->status !== null) {
            $status = Code::tryFrom($this->status) ?? Code::Unknown;
            throw new Failure($status, $this->message, $this->address->text, $this->tokenTrouble);
        }
        if ($curlError === CURLE_OK && $this->http === 200 && $this->isWhole()) {
            // A sidecar that stops says goodbye (GOAWAY) together with its last answers, and libcurl 7.88 then ends
            // the call before its trailers. The answer itself is there.
            return;
        }
        if ($curlError !== CURLE_OK) {
            $unsent = in_array($curlError, [CURLE_COULDNT_CONNECT, CURLE_COULDNT_RESOLVE_HOST], true);
            // The answer that a sidecar gives to half a request is lost in libcurl 7.88.
            $cutShort = $curlError === self::STREAM_ENDED && !$sentAll;
            $message = $curlMessage === '' ? (string) curl_strerror($curlError) : $curlMessage;
            throw new Broken($message, $unsent, $cutShort);
        }
        if ($this->http !== 200 && $this->http !== 0) {
            $what = "what listens there answers with HTTP status $this->http, as no Offramp sidecar does";
            throw new Failure(Code::Unimplemented, $what, $this->address->text);
        }
        throw new Broken('the sidecar ended the call without a status');
    }

    /** The body is one message, from its first byte to its last. */
    private function isWhole(): bool
    {
        return strlen($this->body) >= 5 && strlen($this->body) === 5 + unpack('N', $this->body, 1)[1];
    }

    private function header(\CurlHandle $handle, string $line): int
    {
        if (str_starts_with($line, 'HTTP/')) {
            $this->http = (int) (explode(' ', $line)[1] ?? 0);
        } elseif (strncasecmp($line, 'grpc-status:', 12) === 0) {
            $this->status = (int) trim(substr($line, 12));
        } elseif (strncasecmp($line, 'grpc-message:', 13) === 0) {
            $this->message = rawurldecode(trim(substr($line, 13)));
        }
        return strlen($line);
    }

    private function write(\CurlHandle $handle, string $data): int
    {
        $this->body .= $data;
        return strlen($data);
    }
}
