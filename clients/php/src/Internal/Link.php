<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\Batch;
use Offramp\Exception\OfframpException;
use Offramp\Exception\Unavailable;
use Offramp\Grpc\Broken;
use Offramp\Grpc\Channel;
use Offramp\Grpc\Failure;
use Offramp\Grpc\Interrupted;
use Offramp\Options;
use Offramp\SettleResult;
use Offramp\SettleStatus;
use Offramp\V1\Extension;
use Offramp\V1\ExtendLeaseRequest;
use Offramp\V1\ExtendLeaseResponse;
use Offramp\V1\Notice;
use Offramp\V1\NoticeKind;
use Offramp\V1\SettleResponse;
use Offramp\V1\SettleStatus as WireStatus;

/**
 * The connection to a sidecar, for as many of its lives as it takes: opens sessions, and says again what was not
 * answered.
 *
 * @internal
 */
final class Link implements Desk
{
    /** seconds for a call that waits for nothing */
    private const CALL = 30.0;
    /** seconds that one try to connect gets, however short the wait: one who never waits would never get there else */
    private const ATTEMPT = 1.0;
    /** bytes that a request needs besides its settlements */
    private const ENVELOPE = 4_096;
    private const REQUEST_BYTES = 4 << 20;
    /** batches in hand after which it is worth looking for those that nobody holds any more */
    private const MANY = 100;

    private readonly Channel $channel;
    private readonly Log $log;
    /** of whoever exchanges: one for all that is still to be said in the end. An answer begins it anew. */
    private Farewell $farewell;
    private ?Session $session = null;
    /** @var array<string, \WeakReference<Batch>> batches in hand, by lease */
    private array $held = [];
    /** @var \WeakMap<Batch, Session> which session brought a batch */
    private \WeakMap $origins;
    /** when the sidecar was found missing; null: it is not */
    private ?float $awaySince = null;
    /** it was said once that the sidecar is missing */
    private bool $complained = false;

    /** @param \Closure(): bool $stopped whether this process should not wait any longer */
    public function __construct(
        private readonly string $subscription,
        private readonly Options $options,
        private readonly \Closure $stopped,
    ) {
        if ($subscription === '') {
            throw new \InvalidArgumentException("subscription: a name is needed, as in the sidecar's configuration");
        }
        Requirements::check();
        $this->log = new Log($options->logger);
        $this->channel = new Channel($options->to);
        $this->farewell = new Farewell($stopped);
        $this->origins = new \WeakMap();
    }

    public function log(): Log
    {
        return $this->log;
    }

    /** There is a session with the sidecar now. */
    public function connected(): bool
    {
        return $this->session !== null && $this->session->lives();
    }

    /**
     * Hand in what is to be settled, and take up to so many batches, waiting up to so many seconds for the first.
     * With `connectWithin` the wait for a sidecar that is not there is limited too.
     *
     * @param list<array{Batch, Settlement}> $say
     * @return list<Batch>
     * @throws OfframpException
     */
    public function exchange(array &$say, int $batches, float $wait, ?float $connectWithin = null): array
    {
        $ends = $connectWithin === null ? INF : microtime(true) + $connectWithin;
        $over = fn (): bool => ($this->stopped)() || microtime(true) >= $ends;
        $backoff = new Backoff();
        while (($session = $this->session($ends)) !== null) {
            // Those that are too large for one request go ahead, each alone.
            $say = $this->settleLarge($say);
            try {
                $settlements = array_map(static fn (array $one): string => $one[1]->encode(), $say);
                $left = max($ends - microtime(true), 0.0);
                $bytes = $session->fetch($settlements, $batches, min($wait, $left), $this->farewell);
            } catch (Failure $failure) {
                $this->mayPass($failure);
                // In the same session, which keeps what is in hand.
                $backoff->pause($over);
                if ($over()) {
                    return [];
                }
                continue;
            }
            if ($bytes === null) {
                $this->lose($session, 'the session ended');
                if (microtime(true) >= $ends) {
                    return [];
                }
                continue;
            }
            $this->isBack(null);
            [$came, $results, $notices] = Wire::fetchResponse($bytes);
            $this->answered($say, $results);
            $say = [];
            $taken = array_map(fn (string $one): Batch => $this->hold($one, $session), $came);
            foreach ($notices as $notice) {
                $this->notice($notice);
            }
            return $taken;
        }
        return [];
    }

    public function settle(Batch $batch, Settlement $settlement): SettleResult
    {
        // One of its own: a handler may have worked for long since this process was told to stop.
        return $this->settleWithin(new Farewell($this->stopped), $batch, $settlement);
    }

    /**
     * Settle what is left when nothing more is taken, in the time that is left.
     *
     * @param list<array{Batch, Settlement}> $say
     */
    public function settleLast(array $say): void
    {
        foreach ($say as [$batch, $settlement]) {
            $this->settleWithin($this->farewell, $batch, $settlement);
        }
    }

    public function extend(Batch $batch, float $seconds): float
    {
        $extension = new Extension();
        $extension->setLease($batch->lease);
        $extension->setLeaseForMs((int) round($seconds * 1_000));
        $request = new ExtendLeaseRequest();
        $request->setExtensions([$extension]);
        $farewell = new Farewell($this->stopped);
        $bytes = $this->insist('ConsumerService/ExtendLease', $request->serializeToString(), $farewell);
        if ($bytes === null) {
            return 0.0;
        }
        $response = new ExtendLeaseResponse();
        $response->mergeFromString($bytes);
        foreach ($response->getResults() as $result) {
            if ($result->getStatus() === WireStatus::SETTLE_STATUS_UNSPECIFIED) {
                return $result->getLeaseForMs() / 1_000;
            }
        }
        $this->log->warning("$this->subscription: the lease of {$batch->describe()} is lost and cannot be extended");
        return 0.0;
    }

    public function lives(Batch $batch): bool
    {
        return isset($this->origins[$batch]) && $this->origins[$batch]->lives();
    }

    /** Give back what is in hand and not settled, and end the session. */
    public function leave(): void
    {
        $farewell = new Farewell($this->stopped);
        foreach ($this->held as $reference) {
            $batch = $reference->get();
            $settlement = $batch?->conclude(Verdict::release());
            if ($batch !== null && $settlement !== null && $this->lives($batch)) {
                $this->said($batch, $settlement, $farewell);
            }
        }
        $this->cut();
    }

    /** End the session. What is in hand and not settled may have been processed, as far as the sidecar knows. */
    public function cut(): void
    {
        $this->session?->end();
        $this->session = null;
        $this->held = [];
        $this->channel->reset();
    }

    // Settling

    /**
     * @param list<array{Batch, Settlement}> $say
     * @return list<array{Batch, Settlement}> those that fit into one request together
     */
    private function settleLarge(array $say): array
    {
        if ($say === []) {
            return [];
        }
        $most = $this->mostBytes();
        $fit = [];
        foreach ($say as [$batch, $settlement]) {
            if (strlen($settlement->encode()) > $most / count($say)) {
                $this->settleWithin($this->farewell, $batch, $settlement);
            } else {
                $fit[] = [$batch, $settlement];
            }
        }
        return $fit;
    }

    private function settleWithin(Farewell $farewell, Batch $batch, Settlement $settlement): SettleResult
    {
        $result = $this->said($batch, $settlement, $farewell);
        $this->tell($batch, $result);
        return $result;
    }

    private function said(Batch $batch, Settlement $settlement, Farewell $farewell): SettleResult
    {
        unset($this->held[$batch->lease]);
        $results = [];
        foreach ($settlement->pieces(count($batch), $this->mostBytes()) as $piece) {
            // A SettleRequest.
            $bytes = $this->insist('ConsumerService/Settle', Wire::lengthDelimited(1, $piece->encode()), $farewell);
            if ($bytes === null) {
                $results[] = Results::missing('the sidecar is away and this process is stopping');
                continue;
            }
            $response = new SettleResponse();
            $response->mergeFromString($bytes);
            foreach ($response->getResults() as $result) {
                $results[] = Results::read($result);
            }
        }
        return Results::merge($results);
    }

    /** Call until there is an answer. Null if this process is to stop and the sidecar stays away. */
    private function insist(string $method, string $request, Farewell $farewell): ?string
    {
        $backoff = new Backoff();
        while (!$farewell->over()) {
            try {
                $timeout = $farewell->limit(self::CALL);
                $answer = $this->channel->call($method, $request, $timeout, static fn (): bool => $farewell->over());
                $this->isBack(null);
                return $answer;
            } catch (Interrupted) {
                return null;
            } catch (Failure $failure) {
                $this->mayPass($failure);
            } catch (Broken $error) {
                $this->isAway($this->options->to->explain($error));
            }
            $farewell->pause($backoff);
        }
        return null;
    }

    /**
     * @param list<array{Batch, Settlement}> $said
     * @param list<string> $results
     */
    private function answered(array $said, array $results): void
    {
        foreach ($said as $place => [$batch]) {
            unset($this->held[$batch->lease]);
            $this->tell($batch, isset($results[$place]) ? Results::parse($results[$place]) : Results::missing());
        }
    }

    private function tell(Batch $batch, SettleResult $result): void
    {
        if (!$result->isSettled()) {
            $this->log->warning(
                "$this->subscription: the sidecar did not count the settlement of {$batch->describe()}, whose records "
                . "may be delivered again: {$result->status->name}" . ($result->detail === '' ? '' : " ($result->detail)")
            );
        }
        if ($this->options->onResult !== null) {
            ($this->options->onResult)($batch, $result);
        }
    }

    private function mostBytes(): int
    {
        $limit = (int) ($this->session?->welcome->getLimits()?->getMaxRequestBytes() ?? 0);
        return ($limit === 0 ? self::REQUEST_BYTES : $limit) - self::ENVELOPE;
    }

    // Sessions

    /**
     * A session that lives, as far as is known. Null if this process is to stop, or if there was none until `ends` and
     * after one try at least.
     */
    private function session(float $ends): ?Session
    {
        if ($this->session !== null && !$this->session->lives()) {
            $this->lose($this->session, 'the connection broke');
        }
        $backoff = new Backoff();
        $over = fn (): bool => ($this->stopped)() || microtime(true) >= $ends;
        $attemptEnds = max($ends, microtime(true) + self::ATTEMPT);
        $hopeless = fn (): bool => ($this->stopped)() || microtime(true) >= $attemptEnds;
        for ($tried = false; $this->session === null; $tried = true) {
            if ($tried ? $over() : ($this->stopped)()) {
                return null;
            }
            try {
                $this->session = Session::open($this->channel, $this->subscription, $this->options, $hopeless);
                $this->isBack($this->session);
            } catch (Interrupted) {
                return null;
            } catch (Failure $failure) {
                $this->mayPass($failure);
                $backoff->pause($over);
            } catch (Broken $error) {
                $this->isAway($this->options->to->explain($error));
                $backoff->pause($over);
            }
        }
        return $this->session;
    }

    private function lose(Session $session, string $why): void
    {
        $session->end();
        $this->session = null;
        $this->held = [];
        $this->channel->reset();
        $this->awaySince ??= microtime(true);
        $this->log->info("$this->subscription: lost the session with the sidecar at {$this->options->to->text}: $why");
    }

    /** @throws Unavailable when patience is at its end */
    private function isAway(string $why): void
    {
        $this->awaySince ??= microtime(true);
        if ($this->options->patience !== null && microtime(true) - $this->awaySince >= $this->options->patience) {
            throw new Unavailable($why);
        }
        if (!$this->complained) {
            $this->complained = true;
            $this->log->warning("$this->subscription: $why; trying until it is there");
        }
    }

    private function isBack(?Session $session): void
    {
        if ($session !== null) {
            $away = $this->awaySince === null ? 0.0 : microtime(true) - $this->awaySince;
            $after = $away > 0.0 ? sprintf(' after %.1f seconds', $away) : '';
            $this->log->info(
                "$this->subscription: connected to the sidecar at {$this->options->to->text} (version "
                . $session->welcome->getSidecarVersion() . ")$after"
            );
        }
        $this->awaySince = null;
        $this->complained = false;
        $this->farewell = new Farewell($this->stopped);
    }

    private function hold(string $bytes, Session $session): Batch
    {
        $batch = new Batch($bytes, $this);
        if (count($this->held) >= self::MANY) {
            // Those that were dropped without being settled.
            $this->held = array_filter($this->held, static fn (\WeakReference $one): bool => $one->get() !== null);
        }
        $this->held[$batch->lease] = \WeakReference::create($batch);
        $this->origins[$batch] = $session;
        return $batch;
    }

    private function notice(string $bytes): void
    {
        $notice = new Notice();
        $notice->mergeFromString($bytes);
        $detail = $notice->getDetail() === '' ? '' : ": {$notice->getDetail()}";
        switch ($notice->getKind()) {
            case NoticeKind::NOTICE_KIND_REVOKED:
                foreach ($notice->getLeases() as $lease) {
                    ($this->held[$lease] ?? null)?->get()?->revoke();
                }
                $this->inform('lanes moved to another sidecar; batches of theirs are lost', $detail);
                break;
            case NoticeKind::NOTICE_KIND_DRAINING:
                $this->inform('the sidecar is stopping; what is in hand can still be settled', $detail);
                break;
            case NoticeKind::NOTICE_KIND_PAUSED:
                $this->inform('the subscription is paused', $detail);
                break;
            case NoticeKind::NOTICE_KIND_RESUMED:
                $this->inform('the subscription goes on', $detail);
                break;
        }
    }

    private function inform(string $what, string $detail): void
    {
        $this->log->info("$this->subscription: $what$detail");
    }

    private function notReady(Failure $failure): string
    {
        return "the sidecar at {$this->options->to->text} is not ready ({$failure->getMessage()}): give it a moment, or "
            . 'see its log for what it lacks';
    }

    /** @throws OfframpException if it will not, or patience is at its end */
    private function mayPass(Failure $failure): void
    {
        $refusal = $failure->refusal();
        if ($refusal !== null) {
            throw $refusal;
        }
        $this->isAway($failure->oldToken() ?? $this->notReady($failure));
    }
}
