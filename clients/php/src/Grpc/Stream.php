<?php

declare(strict_types=1);

namespace Offramp\Grpc;

/**
 * A call that the sidecar answers with a stream, on a connection of its own. It may be left alone for as long as one
 * likes: the operating system ends it with the process.
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
    private bool $over = false;

    public function __construct(Address $address, string $method, string $request)
    {
        $this->pid = (int) getmypid();
        $this->call = new Call($address, $method);
        $this->handle = Call::handle($address);
        $this->call->prepare($this->handle, $request, CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
        $before = Sockets::open();
        $this->multi = curl_multi_init();
        curl_multi_add_handle($this->multi, $this->handle);
        curl_multi_exec($this->multi, $running);
        $this->sockets = Sockets::guard($before);
    }

    /**
     * The next message. Null if none came within so many seconds, or if `stopped` says not to wait.
     *
     * @param null|callable(): bool $stopped
     * @throws Failure|Broken when the stream is over
     */
    public function read(float $timeout, ?callable $stopped = null): ?string
    {
        $until = microtime(true) + $timeout;
        while (true) {
            $this->look();
            $message = $this->call->message();
            if ($message !== null || ($left = $until - microtime(true)) <= 0) {
                return $message;
            }
            curl_multi_select($this->multi, min($left, $this->call->begun() ? 0.01 : 0.5));
            if ($stopped !== null && $stopped()) {
                return null;
            }
        }
    }

    /** Whether the stream lives, as far as can be seen without waiting. */
    public function lives(): bool
    {
        if ($this->over || $this->multi === null) {
            return false;
        }
        try {
            $this->look();
        } catch (Failure | Broken) {
            return false;
        }
        return true;
    }

    /** End it from this side. */
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
            // Else curl would take leave of the sidecar in the name of the process that this one was forked from.
            Sockets::close($this->sockets);
        }
    }

    private function look(): void
    {
        if ($this->multi === null) {
            throw new Broken('this process has ended the call');
        }
        curl_multi_exec($this->multi, $running);
        $done = curl_multi_info_read($this->multi);
        if ($done !== false) {
            $this->over = true;
            $this->call->check($done['result'], curl_error($this->handle));
            throw new Broken('the sidecar has ended the call');
        }
    }
}
