<?php

declare(strict_types=1);

namespace Offramp\Grpc;

use Offramp\Exception\Forked;
use Offramp\Exception\ProtocolBroken;

/**
 * Unary calls to the sidecar, one at a time, over one connection that is made when it is needed.
 *
 * gRPC by curl: HTTP/2, with TLS or without. Without it, libcurl 7.88 uses a connection again only if the second request asks for
 * `CURL_HTTP_VERSION_2_0`, and can make one only if the first asks for prior knowledge. So after any error the
 * connection is given up and the next request begins with prior knowledge. Other versions use one again by prior
 * knowledge, and make a new one for `CURL_HTTP_VERSION_2_0`, in vain: which kind this one is must be found out.
 *
 * @internal
 */
final class Channel
{
    /** seconds between two looks at what whoever waits says */
    private const LOOK = 0.5;
    /** seconds to wait for more of an answer that has begun: libcurl 7.88 may have it and not say so for 200 ms */
    private const MORE = 0.001;
    /** after so many misses, and no connection ever used again, it is by prior knowledge that this libcurl does */
    private const MISSES = 3;

    private ?\CurlMultiHandle $multi = null;
    private ?\CurlHandle $handle = null;
    private bool $connected = false;
    /** a call that broke had made a connection of its own */
    private bool $missed = false;
    /** calls that found no connection to use again, while it is not known how this libcurl does that */
    private int $misses = 0;
    /** the HTTP version by which it does; null: not known yet */
    private ?int $again = null;
    /** @var list<int> */
    private array $sockets = [];
    private readonly int $pid;

    public function __construct(public readonly Address $address)
    {
        $this->pid = (int) getmypid();
    }

    /**
     * Call `Service/Method` and give its answer. `stopped` is asked twice a second and after every signal whether to go
     * on waiting, and is told whether the answer has begun to come.
     *
     * @param null|callable(bool): bool $stopped
     * @throws Failure the sidecar answered with an error
     * @throws Broken no answer came
     * @throws Interrupted `stopped` said so
     */
    public function call(string $method, string $request, float $timeout, ?callable $stopped = null): string
    {
        self::checkProcess($this->pid);
        while (true) {
            $reuse = $this->connected;
            $version = $reuse ? $this->again ?? CURL_HTTP_VERSION_2_0 : CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE;
            try {
                $answer = $this->attempt($method, $request, $version, $timeout, $stopped);
                $this->again = $version === CURL_HTTP_VERSION_2_0 ? $version : $this->again;
                return $answer;
            } catch (Broken $broken) {
                if ($version === CURL_HTTP_VERSION_2_0 && $this->missed && !$this->address->tls) {
                    // The connection was gone and curl made a new one, on which it did not speak HTTP/2: the sidecar
                    // cannot have understood a word.
                    if (++$this->misses === self::MISSES) {
                        $this->again ??= CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE;
                    }
                    continue;
                }
                if ($reuse && $version === CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE && !$this->missed) {
                    // Perhaps it was learned from connections that were lost: libcurl 7.88 breaks one that is used so.
                    $this->again = null;
                    $this->misses = 0;
                }
                throw $broken;
            }
        }
    }

    /** Give up the connection; the next call makes a new one. */
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
        $this->handle ??= Call::handle($this->address);
        $call->prepare($this->handle, $request, $version, (int) ceil($timeout * 1_000));
        $before = $this->connected ? [] : Sockets::open();
        curl_multi_add_handle($this->multi, $this->handle);
        $healthy = false;
        try {
            $error = $this->perform($this->multi, $call, $stopped, $before);
            $sent = (int) curl_getinfo($this->handle, CURLINFO_SIZE_UPLOAD);
            $call->check($error, curl_error($this->handle), $sent >= strlen($request));
            $healthy = true;
            return $call->message() ?? throw new ProtocolBroken("the sidecar answered $method with no message");
        } catch (Failure $failure) {
            $healthy = true;
            throw $failure;
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
     * @param list<int> $before sockets that there were before this call made its connection
     * @return int curl's error
     */
    private function perform(\CurlMultiHandle $multi, Call $call, ?callable $stopped, array $before): int
    {
        $guarded = $this->connected;
        do {
            curl_multi_exec($multi, $running);
            if (!$guarded) {
                // The socket is there once the connection was begun, and must not reach programs started later.
                $this->sockets = Sockets::guard($before);
                $guarded = $this->sockets !== [];
            }
            if ($running === 0) {
                break;
            }
            curl_multi_select($multi, $call->begun() ? self::MORE : self::LOOK);
            if ($stopped !== null && $stopped($call->begun())) {
                throw new Interrupted();
            }
        } while (true);
        $done = curl_multi_info_read($multi);
        return $done === false ? CURLE_RECV_ERROR : $done['result'];
    }
}
