<?php

declare(strict_types=1);

namespace Offramp\Grpc;

/**
 * A server-streaming call on its own connection. It needs no attention while it is open: the operating system ends it
 * with the process.
 *
 * @internal
 */
final class Stream
{
    private readonly Call $call;
    private readonly \CurlHandle $handle;
    private ?\CurlMultiHandle $multi;
    /** @var list<int> */
    private array $sockets;
    private readonly int $pid;
    private bool $ended = false;

    public function __construct(Address $address, string $method, string $request)
    {
        $this->pid = (int) getmypid();
        $this->call = new Call($address, $method);
        $this->handle = Call::newHandle($address);
        $this->call->prepare($this->handle, $request, CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
        $before = Sockets::all();
        $this->multi = curl_multi_init();
        curl_multi_add_handle($this->multi, $this->handle);
        curl_multi_exec($this->multi, $running);
        $this->sockets = Sockets::closeOnExec($before);
    }

    /**
     * The next message. Null if none arrived within `timeout` seconds, or if `stopped` returns true.
     *
     * @param null|callable(): bool $stopped
     * @throws ErrorStatus|ConnectionFailed when the stream has ended
     */
    public function read(float $timeout, ?callable $stopped = null): ?string
    {
        $until = microtime(true) + $timeout;
        while (true) {
            $this->poll();
            $message = $this->call->message();
            if ($message !== null || ($left = $until - microtime(true)) <= 0) {
                return $message;
            }
            curl_multi_select($this->multi, min($left, $this->call->isArriving() ? 0.01 : 0.5));
            if ($stopped !== null && $stopped()) {
                return null;
            }
        }
    }

    /** Whether the stream is open, as far as this process can tell without waiting. */
    public function isAlive(): bool
    {
        if ($this->ended || $this->multi === null) {
            return false;
        }
        try {
            $this->poll();
        } catch (ErrorStatus | ConnectionFailed) {
            return false;
        }
        return true;
    }

    /** Ends the stream from this side. */
    public function cancel(): void
    {
        if ($this->multi !== null) {
            curl_multi_remove_handle($this->multi, $this->handle);
            curl_multi_close($this->multi);
            $this->multi = null;
        }
    }

    public function __destruct()
    {
        if (getmypid() !== $this->pid) {
            // Otherwise curl would end the stream of the process that this one was forked from.
            Sockets::close($this->sockets);
        }
    }

    private function poll(): void
    {
        if ($this->multi === null) {
            throw new ConnectionFailed('this process has ended the call');
        }
        curl_multi_exec($this->multi, $running);
        $done = curl_multi_info_read($this->multi);
        if ($done !== false) {
            $this->ended = true;
            $this->call->check($done['result'], curl_error($this->handle));
            throw new ConnectionFailed('the sidecar has ended the call');
        }
    }
}
