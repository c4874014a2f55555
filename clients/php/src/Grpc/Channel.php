<?php

declare(strict_types=1);

namespace Offramp\Grpc;

use Offramp\Exception\Forked;
use Offramp\Exception\ProtocolBroken;

/**
 * Unary calls to the sidecar, one at a time, over one connection that is made when it is needed.
 *
 * gRPC over curl: HTTP/2, with or without TLS. Without TLS, libcurl 7.88 reuses a connection only if the second request
 * asks for `CURL_HTTP_VERSION_2_0`, but can open one only if the first asks for prior knowledge. So after any error the
 * connection is closed and the next request starts with prior knowledge. Other versions reuse a connection with prior
 * knowledge, and for `CURL_HTTP_VERSION_2_0` open a new one, which fails. This class finds out which of both it has.
 *
 * @internal
 */
final class Channel
{
    /** seconds between two calls of `stopped` */
    private const POLL_INTERVAL = 0.5;
    /** seconds to wait for more of an arriving answer: libcurl 7.88 may have it without reporting it for 200 ms */
    private const ARRIVING_POLL_INTERVAL = 0.001;
    /** after this many misses, and no connection ever reused, assume that this libcurl reuses with prior knowledge */
    private const MAX_MISSES = 3;

    private ?\CurlMultiHandle $multi = null;
    private ?\CurlHandle $handle = null;
    private bool $connected = false;
    /** the call that failed last had opened a new connection */
    private bool $missed = false;
    /** calls that could not reuse a connection, while `reuseVersion` is unknown */
    private int $misses = 0;
    /** the HTTP version with which this libcurl reuses a connection; null: not known yet */
    private ?int $reuseVersion = null;
    /** @var list<int> */
    private array $sockets = [];
    private readonly int $pid;

    public function __construct(public readonly Address $address)
    {
        $this->pid = (int) getmypid();
    }

    /**
     * Calls `Service/Method` and returns its answer. Calls `stopped` twice a second and after every signal, with
     * whether the answer has begun to arrive; it returns true to stop waiting.
     *
     * @param null|callable(bool): bool $stopped
     * @throws ErrorStatus the sidecar answered with an error
     * @throws ConnectionFailed there was no answer
     * @throws Interrupted `stopped` returned true
     */
    public function call(string $method, string $request, float $timeout, ?callable $stopped = null): string
    {
        self::checkProcess($this->pid);
        while (true) {
            $reuse = $this->connected;
            $version = $reuse ? $this->reuseVersion ?? CURL_HTTP_VERSION_2_0 : CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE;
            try {
                $answer = $this->attempt($method, $request, $version, $timeout, $stopped);
                $this->reuseVersion = $version === CURL_HTTP_VERSION_2_0 ? $version : $this->reuseVersion;
                return $answer;
            } catch (ConnectionFailed $error) {
                if ($version === CURL_HTTP_VERSION_2_0 && $this->missed && !$this->address->tls) {
                    // The connection was gone, and curl opened a new one without HTTP/2: the sidecar cannot have read
                    // the request, so it is safe to repeat.
                    if (++$this->misses === self::MAX_MISSES) {
                        $this->reuseVersion ??= CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE;
                    }
                    continue;
                }
                if ($reuse && $version === CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE && !$this->missed) {
                    // The assumption may be wrong: libcurl 7.88 breaks a connection that is reused like this.
                    $this->reuseVersion = null;
                    $this->misses = 0;
                }
                throw $error;
            }
        }
    }

    /** Closes the connection; the next call makes a new one. */
    public function reset(): void
    {
        if ($this->multi !== null && $this->handle !== null) {
            curl_multi_remove_handle($this->multi, $this->handle);
        }
        $this->multi = $this->handle = null;
        $this->connected = false;
        $this->sockets = [];
    }

    public function __destruct()
    {
        if (getmypid() !== $this->pid) {
            Sockets::close($this->sockets);
        }
    }

    /** @throws Forked in any process but the one that opened the connection */
    public static function checkProcess(int $openedBy): void
    {
        $pid = (int) getmypid();
        if ($pid !== $openedBy) {
            throw new Forked(
                "this was opened by process $openedBy and is used by $pid, which was forked from it: open it after the "
                . 'fork'
            );
        }
    }

    /** @param null|callable(bool): bool $stopped */
    private function attempt(
        string $method,
        string $request,
        int $version,
        float $timeout,
        ?callable $stopped,
    ): string {
        $call = new Call($this->address, $method);
        $this->multi ??= curl_multi_init();
        $this->handle ??= Call::newHandle($this->address);
        $call->prepare($this->handle, $request, $version, (int) ceil($timeout * 1_000));
        $before = $this->connected ? [] : Sockets::all();
        curl_multi_add_handle($this->multi, $this->handle);
        $healthy = false;
        try {
            $error = $this->perform($this->multi, $call, $stopped, $before);
            $call->check($error, curl_error($this->handle));
            $healthy = true;
            return $call->message() ?? throw new ProtocolBroken("the sidecar answered $method with no message");
        } catch (ErrorStatus $error) {
            $healthy = true;
            throw $error;
        } finally {
            if ($healthy) {
                curl_multi_remove_handle($this->multi, $this->handle);
                $this->connected = true;
            } else {
                $this->missed = curl_getinfo($this->handle, CURLINFO_NUM_CONNECTS) > 0;
                $this->reset();
            }
        }
    }

    /**
     * @param null|callable(bool): bool $stopped
     * @param list<int> $before sockets that existed before this call made its connection
     * @return int curl's error
     */
    private function perform(\CurlMultiHandle $multi, Call $call, ?callable $stopped, array $before): int
    {
        $marked = $this->connected;
        do {
            curl_multi_exec($multi, $running);
            if (!$marked) {
                // The socket exists as soon as curl connects; programs that are started later must not inherit it.
                $this->sockets = Sockets::closeOnExec($before);
                $marked = $this->sockets !== [];
            }
            if ($running === 0) {
                break;
            }
            curl_multi_select($multi, $call->isArriving() ? self::ARRIVING_POLL_INTERVAL : self::POLL_INTERVAL);
            if ($stopped !== null && $stopped($call->isArriving())) {
                throw new Interrupted();
            }
        } while (true);
        $done = curl_multi_info_read($multi);
        return $done === false ? CURLE_RECV_ERROR : $done['result'];
    }
}
