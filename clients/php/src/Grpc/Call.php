<?php

declare(strict_types=1);

namespace Offramp\Grpc;

use Offramp\Exception\ProtocolBroken;

/**
 * One gRPC call over curl: the options of a handle, the messages in the body, the status in the trailers.
 *
 * @internal
 */
final class Call
{
    /** what has arrived and was not read as a message yet */
    private string $body = '';
    private ?int $status = null;
    private string $message = '';
    /** the status for programs, in base64 */
    private string $details = '';
    private int $httpStatus = 0;
    /** why this call was made with an earlier token; null: it was not */
    private ?string $tokenFileError = null;

    public function __construct(private readonly Address $address, private readonly string $method)
    {
    }

    public static function newHandle(Address $address): \CurlHandle
    {
        $handle = curl_init();
        $options = [
            CURLOPT_POST => true,
            CURLOPT_NOSIGNAL => true,
            // The sidecar is in this pod or cluster: no proxy leads to it.
            CURLOPT_PROXY => '',
            CURLOPT_NOPROXY => '*',
            CURLOPT_CONNECTTIMEOUT_MS => 5_000,
            CURLOPT_TCP_NODELAY => true,
            // Large, so that a batch arrives in few pieces.
            CURLOPT_BUFFERSIZE => 512 << 10,
            CURLOPT_USERAGENT => 'offramp-php/' . \Offramp\Protocol::VERSION,
        ];
        curl_setopt_array($handle, $options + $address->curlOptions());
        return $handle;
    }

    /** Sets the handle's options for this call. */
    public function prepare(\CurlHandle $handle, string $request, int $httpVersion, int $timeoutMs = 0): void
    {
        $headers = ['content-type: application/grpc', 'te: trailers', 'Expect:', 'Accept:'];
        if ($timeoutMs > 0) {
            $headers[] = "grpc-timeout: {$timeoutMs}m";
        }
        $authorization = $this->address->credentials->header();
        $this->tokenFileError = $this->address->credentials->tokenFileError();
        if ($authorization !== null) {
            $headers[] = $authorization;
        }
        curl_setopt_array($handle, [
            CURLOPT_URL => "{$this->address->url}/offramp.v1.$this->method",
            // With TLS both sides negotiate HTTP/2 before the first request.
            CURLOPT_HTTP_VERSION => $this->address->tls ? CURL_HTTP_VERSION_2TLS : $httpVersion,
            CURLOPT_HTTPHEADER => $headers,
            CURLOPT_POSTFIELDS => "\0" . pack('N', strlen($request)) . $request,
            // A little longer than the sidecar's own limit, whose error says more.
            CURLOPT_TIMEOUT_MS => $timeoutMs > 0 ? $timeoutMs + 5_000 : 0,
            CURLOPT_HEADERFUNCTION => $this->header(...),
            CURLOPT_WRITEFUNCTION => $this->write(...),
        ]);
    }

    /** Whether a message has begun to arrive. */
    public function isArriving(): bool
    {
        return $this->body !== '';
    }

    /** The next complete message of the body, or null. */
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
            throw new ProtocolBroken('the sidecar sent a compressed message, which this client did not ask for');
        }
        $message = substr($this->body, 5, $size);
        $this->body = strlen($this->body) === 5 + $size ? '' : substr($this->body, 5 + $size);
        return $message;
    }

    /**
     * Checks the status of a call that has ended.
     *
     * @throws ErrorStatus|ConnectionFailed
     */
    public function check(int $curlError, string $curlMessage): void
    {
        if ($this->status === Code::Ok->value) {
            return;
        }
        if ($this->status !== null) {
            $status = Code::tryFrom($this->status) ?? Code::Unknown;
            $info = ErrorInfo::parse($this->details);
            throw new ErrorStatus($status, $this->message, $this->address->text, $this->tokenFileError, $info);
        }
        if ($curlError === CURLE_OK && $this->httpStatus === 200 && $this->isComplete()) {
            // A sidecar that stops sends GOAWAY together with its last answers, and libcurl 7.88 then ends the call
            // before its trailers. The answer itself is complete.
            return;
        }
        if ($curlError !== CURLE_OK) {
            $unsent = in_array($curlError, [CURLE_COULDNT_CONNECT, CURLE_COULDNT_RESOLVE_HOST], true);
            $message = $curlMessage === '' ? (string) curl_strerror($curlError) : $curlMessage;
            throw new ConnectionFailed($message, $unsent);
        }
        if ($this->httpStatus !== 200 && $this->httpStatus !== 0) {
            $what = "what listens there answers with HTTP status $this->httpStatus, as no Offramp sidecar does";
            throw new ErrorStatus(Code::Unimplemented, $what, $this->address->text);
        }
        throw new ConnectionFailed('the sidecar ended the call without a status');
    }

    /** Whether the body is exactly one message. */
    private function isComplete(): bool
    {
        return strlen($this->body) >= 5 && strlen($this->body) === 5 + unpack('N', $this->body, 1)[1];
    }

    private function header(\CurlHandle $handle, string $line): int
    {
        if (str_starts_with($line, 'HTTP/')) {
            $this->httpStatus = (int) (explode(' ', $line)[1] ?? 0);
        } elseif (strncasecmp($line, 'grpc-status:', 12) === 0) {
            $this->status = (int) trim(substr($line, 12));
        } elseif (strncasecmp($line, 'grpc-message:', 13) === 0) {
            $this->message = rawurldecode(trim(substr($line, 13)));
        } elseif (strncasecmp($line, 'grpc-status-details-bin:', 24) === 0) {
            $this->details = trim(substr($line, 24));
        }
        return strlen($line);
    }

    private function write(\CurlHandle $handle, string $data): int
    {
        $this->body .= $data;
        return strlen($data);
    }
}
