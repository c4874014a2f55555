<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\Batch;
use Offramp\Exception\OfframpException;
use Offramp\Exception\Unavailable;
use Offramp\Grpc\Channel;
use Offramp\Grpc\ConnectionFailed;
use Offramp\Grpc\ErrorStatus;
use Offramp\Grpc\Interrupted;
use Offramp\Options;
use Offramp\SettleResult;
use Offramp\SettleStatus;
use Offramp\V1\ExtendStatus;
use Offramp\V1\Extension;
use Offramp\V1\ExtendLeaseRequest;
use Offramp\V1\ExtendLeaseResponse;
use Offramp\V1\Notice;
use Offramp\V1\NoticeKind;
use Offramp\V1\Outcome as WireOutcome;
use Offramp\V1\SettleResponse;

/**
 * The connection to a sidecar, across its restarts: opens sessions, and repeats settlements that were not answered.
 *
 * @internal
 */
final class Connection implements Settler
{
    /** seconds that a call may take that does not wait for a batch */
    private const CALL_TIMEOUT = 30.0;
    /**
     * seconds that each attempt to connect gets, even if the caller's timeout is shorter: with 0 it would never connect
     */
    private const CONNECT_TIMEOUT = 1.0;
    /** bytes of a request besides its settlements */
    private const ENVELOPE_BYTES = 4_096;
    private const REQUEST_BYTES = 4 << 20;
    private const REQUEST_ENTRIES = 1_000;
    /** batches in hand from which on dropped ones are removed from the list */
    private const PRUNE_FROM = 100;

    private readonly Channel $channel;
    private readonly Log $log;
    /** shared by all exchanges and the last settlements; each answer of the sidecar restarts it */
    private StopDeadline $stopDeadline;
    private ?Session $session = null;
    /** the one before, whose connection was lost and which the sidecar may resume */
    private ?Session $former = null;
    /** @var array<string, \WeakReference<Batch>> batches that are not settled, by lease */
    private array $held = [];
    /** @var \WeakMap<Batch, Session> the session that delivered a batch */
    private \WeakMap $origins;
    /** since when the sidecar is unavailable; null: it is available */
    private ?float $unavailableSince = null;
    /** it was logged once that the sidecar is unavailable */
    private bool $warned = false;

    /** @param \Closure(): bool $stopped whether this process is stopping */
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
        $this->stopDeadline = new StopDeadline($stopped);
        $this->origins = new \WeakMap();
    }

    public function log(): Log
    {
        return $this->log;
    }

    /** Whether there is a session with the sidecar now. */
    public function isConnected(): bool
    {
        return $this->session !== null && $this->session->isAlive();
    }

    /**
     * Settles what is pending and takes up to `batches` batches, waiting up to `wait` seconds for the first. With
     * `connectWithin`, also limits the wait for a sidecar that is not there.
     *
     * @param list<array{Batch, Settlement}> $pending emptied when the sidecar has answered
     * @return list<Batch>
     * @throws OfframpException
     */
    public function exchange(array &$pending, int $batches, float $wait, ?float $connectWithin = null): array
    {
        $ends = $connectWithin === null ? INF : microtime(true) + $connectWithin;
        $expired = fn (): bool => ($this->stopped)() || microtime(true) >= $ends;
        $backoff = new Backoff();
        if ($this->former?->hasUnanswered()) {
            // Only the call that was interrupted could have repeated its own settlements.
            $this->forgetFormer();
        }
        while (($session = $this->session($ends)) !== null) {
            // Settlements that are too large for one request are sent before it, each alone.
            $pending = $this->settleLarge($pending);
            try {
                $settlements = array_map(static fn (array $one): string => $one[1]->encode(), $pending);
                $left = max($ends - microtime(true), 0.0);
                $bytes = $session->fetch($settlements, $batches, min($wait, $left), $this->stopDeadline);
            } catch (ErrorStatus $error) {
                $this->raiseUnlessTransient($error);
                // Retried in the same session, which keeps the batches in hand.
                $backoff->pause($expired);
                if ($expired()) {
                    return [];
                }
                continue;
            }
            if ($bytes === null) {
                $this->dropSession($session, 'the session ended');
                if (microtime(true) >= $ends && $this->former === null) {
                    return [];
                }
                continue;
            }
            $this->setAvailable(null);
            [$delivered, $results, $notices] = Wire::fetchResponse($bytes);
            foreach ($pending as $index => [$batch, $settlement]) {
                unset($this->held[$batch->lease]);
                $result = isset($results[$index]) ? Results::parse($results[$index]) : Results::unanswered();
                $this->report($batch, $result);
                $this->nackIfRefused($batch, $settlement, $result, $this->stopDeadline);
            }
            $pending = [];
            $taken = array_map(fn (string $one): Batch => $this->hold($one, $session), $delivered);
            foreach ($notices as $notice) {
                $this->handleNotice($notice);
            }
            return $taken;
        }
        return [];
    }

    public function settle(Batch $batch, Settlement $settlement): SettleResult
    {
        // A new deadline: the handler may have worked for long since this process was told to stop.
        return $this->settleWithin(new StopDeadline($this->stopped), $batch, $settlement);
    }

    /**
     * Settles what is left before this process ends, within the shared deadline.
     *
     * @param list<array{Batch, Settlement}> $pending
     */
    public function settleLast(array $pending): void
    {
        foreach ($pending as [$batch, $settlement]) {
            $this->settleWithin($this->stopDeadline, $batch, $settlement);
        }
    }

    public function extend(Batch $batch, float $seconds): float
    {
        $extension = new Extension();
        $extension->setLease($batch->lease);
        $extension->setLeaseForMs((int) round($seconds * 1_000));
        $request = new ExtendLeaseRequest();
        $request->setExtensions([$extension]);
        $deadline = new StopDeadline($this->stopped);
        $bytes = $this->callUntilAnswered('ConsumerService/ExtendLease', $request->serializeToString(), $deadline);
        if ($bytes === null) {
            return 0.0;
        }
        $response = new ExtendLeaseResponse();
        $response->mergeFromString($bytes);
        foreach ($response->getResults() as $result) {
            if ($result->getStatus() === ExtendStatus::EXTEND_STATUS_EXTENDED) {
                return $result->getLeaseForMs() / 1_000;
            }
        }
        $this->log->warning("$this->subscription: the lease of {$batch->describe()} is lost and cannot be extended");
        return 0.0;
    }

    public function isAlive(Batch $batch): bool
    {
        $session = $this->origins[$batch] ?? null;
        return match (true) {
            $session === null => false,
            $session === $this->session => $session->isAlive() || $session->mayBeResumed(),
            default => $session === $this->former,
        };
    }

    /** Releases the batches that are not settled, and ends the session. */
    public function close(): void
    {
        $deadline = new StopDeadline($this->stopped);
        foreach ($this->held as $reference) {
            $batch = $reference->get();
            $settlement = $batch?->conclude(Outcome::release());
            if ($batch !== null && $settlement !== null && $this->isAlive($batch)) {
                $this->send($batch, $settlement, $deadline);
            }
        }
        $this->abandon();
    }

    /** Ends the session. The sidecar redelivers batches that are not settled as possibly processed. */
    public function abandon(): void
    {
        $this->session?->end();
        $this->session = $this->former = null;
        $this->held = [];
        $this->channel->reset();
    }

    // Settling

    /**
     * @param list<array{Batch, Settlement}> $pending
     * @return list<array{Batch, Settlement}> those that fit into one request together
     */
    private function settleLarge(array $pending): array
    {
        if ($pending === []) {
            return [];
        }
        $most = $this->maxSettlementBytes();
        $fit = [];
        foreach ($pending as [$batch, $settlement]) {
            if (strlen($settlement->encode()) > $most / count($pending) || $settlement->parts() > $this->maxEntries()) {
                $this->settleWithin($this->stopDeadline, $batch, $settlement);
            } else {
                $fit[] = [$batch, $settlement];
            }
        }
        return $fit;
    }

    private function settleWithin(StopDeadline $deadline, Batch $batch, Settlement $settlement): SettleResult
    {
        $result = $this->send($batch, $settlement, $deadline);
        $this->report($batch, $result);
        $this->nackIfRefused($batch, $settlement, $result, $deadline);
        return $result;
    }

    /** What the sidecar refuses stays leased, and nobody else will settle it. */
    private function nackIfRefused(
        Batch $batch,
        Settlement $settlement,
        SettleResult $result,
        StopDeadline $deadline,
    ): void {
        if ($result->status === SettleStatus::Refused) {
            $nack = Outcome::of(WireOutcome::OUTCOME_NACK, "REFUSED: $result->detail");
            $this->send($batch, $settlement->with($nack), $deadline);
        }
    }

    private function send(Batch $batch, Settlement $settlement, StopDeadline $deadline): SettleResult
    {
        unset($this->held[$batch->lease]);
        $results = [];
        foreach ($settlement->pieces(count($batch), $this->maxSettlementBytes(), $this->maxEntries()) as $piece) {
            $request = Wire::settleRequest($piece->encode());
            $bytes = $this->callUntilAnswered('ConsumerService/Settle', $request, $deadline);
            if ($bytes === null) {
                $results[] = Results::unanswered('the sidecar is unavailable and this process is stopping');
                continue;
            }
            $response = new SettleResponse();
            $response->mergeFromString($bytes);
            foreach ($response->getResults() as $result) {
                $results[] = Results::fromMessage($result);
            }
        }
        return Results::merge($results);
    }

    /** Repeats a call until it is answered. Null if this process is stopping and the deadline expires. */
    private function callUntilAnswered(string $method, string $request, StopDeadline $deadline): ?string
    {
        $backoff = new Backoff();
        while (!$deadline->expired()) {
            try {
                $timeout = $deadline->limit(self::CALL_TIMEOUT);
                $answer = $this->channel->call($method, $request, $timeout, static fn (): bool => $deadline->expired());
                $this->setAvailable(null);
                return $answer;
            } catch (Interrupted) {
                return null;
            } catch (ErrorStatus $error) {
                $this->raiseUnlessTransient($error);
            } catch (ConnectionFailed $error) {
                $this->setUnavailable($this->options->to->explain($error));
            }
            $deadline->pause($backoff);
        }
        return null;
    }

    private function report(Batch $batch, SettleResult $result): void
    {
        if (!$result->isSettled()) {
            $this->log->warning(
                "$this->subscription: the sidecar did not count the settlement of {$batch->describe()}; its records "
                . "may be delivered again: {$result->status->name}"
                . ($result->detail === '' ? '' : " ($result->detail)")
            );
        }
        if ($this->options->onResult !== null) {
            ($this->options->onResult)($batch, $result);
        }
    }

    private function maxSettlementBytes(): int
    {
        $limit = (int) ($this->session?->welcome->getLimits()?->getMaxRequestBytes() ?? 0);
        return ($limit === 0 ? self::REQUEST_BYTES : $limit) - self::ENVELOPE_BYTES;
    }

    /** parts of one settlement that the sidecar accepts */
    private function maxEntries(): int
    {
        $limit = (int) ($this->session?->welcome->getLimits()?->getMaxRequestEntries() ?? 0);
        return $limit === 0 ? self::REQUEST_ENTRIES : $limit;
    }

    // Sessions

    /**
     * A live session, opened if there is none. Null if this process is stopping, or if there was none until `ends` and
     * after at least one attempt.
     */
    private function session(float $ends): ?Session
    {
        if ($this->session !== null && !$this->session->isAlive()) {
            $this->dropSession($this->session, 'the connection broke');
        }
        $backoff = new Backoff();
        $expired = fn (): bool => ($this->stopped)() || microtime(true) >= $ends;
        $attemptEnds = max($ends, microtime(true) + self::CONNECT_TIMEOUT);
        $attemptExpired = fn (): bool => ($this->stopped)() || microtime(true) >= $attemptEnds;
        for ($tried = false; $this->session === null; $tried = true) {
            if ($tried ? $expired() : ($this->stopped)()) {
                return null;
            }
            try {
                $this->session = Session::open(
                    $this->channel,
                    $this->subscription,
                    $this->options,
                    $attemptExpired,
                    $this->former,
                );
                if ($this->session === $this->former) {
                    $this->former = null;
                } else {
                    $this->forgetFormer();
                }
                $this->setAvailable($this->session);
            } catch (Interrupted) {
                return null;
            } catch (ErrorStatus $error) {
                $this->raiseUnlessTransient($error);
                $backoff->pause($expired);
            } catch (ConnectionFailed $error) {
                $this->setUnavailable($this->options->to->explain($error));
                $backoff->pause($expired);
            }
        }
        return $this->session;
    }

    private function dropSession(Session $session, string $why): void
    {
        $session->end();
        $this->session = null;
        $this->former = $session;
        if (!$session->mayBeResumed()) {
            $this->forgetFormer();
        }
        $this->channel->reset();
        $this->unavailableSince ??= microtime(true);
        $this->log->info("$this->subscription: lost the session with the sidecar at {$this->options->to->text}: $why");
    }

    /** The batches of the session before are lost. */
    private function forgetFormer(): void
    {
        if ($this->former !== null) {
            $this->former = null;
            $this->held = [];
        }
    }

    /** @throws Unavailable after the option `patience` */
    private function setUnavailable(string $why): void
    {
        $this->unavailableSince ??= microtime(true);
        $patience = $this->options->patience ?? INF;
        if (microtime(true) - $this->unavailableSince >= $patience) {
            throw new Unavailable($why);
        }
        if (!$this->warned) {
            $this->warned = true;
            $this->log->warning("$this->subscription: $why; retrying until it is there");
        }
    }

    private function setAvailable(?Session $opened): void
    {
        if ($opened !== null) {
            $seconds = $this->unavailableSince === null ? 0.0 : microtime(true) - $this->unavailableSince;
            $after = $seconds > 0.0 ? sprintf(' after %.1f seconds', $seconds) : '';
            $this->log->info(
                "$this->subscription: connected to the sidecar at {$this->options->to->text} (version "
                . $opened->welcome->getSidecarVersion() . ")$after"
            );
        }
        $this->unavailableSince = null;
        $this->warned = false;
        $this->stopDeadline = new StopDeadline($this->stopped);
    }

    private function hold(string $bytes, Session $session): Batch
    {
        $batch = new Batch($bytes, $this);
        if (count($this->held) >= self::PRUNE_FROM) {
            // Batches that were dropped without being settled.
            $this->held = array_filter($this->held, static fn (\WeakReference $one): bool => $one->get() !== null);
        }
        $this->held[$batch->lease] = \WeakReference::create($batch);
        $this->origins[$batch] = $session;
        return $batch;
    }

    private function handleNotice(string $bytes): void
    {
        $notice = new Notice();
        $notice->mergeFromString($bytes);
        $detail = $notice->getDetail() === '' ? '' : ": {$notice->getDetail()}";
        $seconds = (int) $notice->getSettleForMs() / 1_000;
        $left = $seconds > 0 ? sprintf('; %g seconds are left to settle', $seconds) : '';
        switch ($notice->getKind()) {
            case NoticeKind::NOTICE_KIND_REVOKED:
                if ($seconds > 0) {
                    $this->log->info("$this->subscription: lanes move to another sidecar$left$detail");
                    break;
                }
                foreach ($notice->getLeases() as $lease) {
                    ($this->held[$lease] ?? null)?->get()?->revoke();
                }
                $this->log->info("$this->subscription: lanes moved to another sidecar; their batches are lost$detail");
                break;
            case NoticeKind::NOTICE_KIND_DRAINING:
                $this->log->info(
                    "$this->subscription: the sidecar is stopping; batches in hand can still be settled$left$detail"
                );
                break;
            case NoticeKind::NOTICE_KIND_PAUSED:
                $this->log->info("$this->subscription: the subscription is paused$detail");
                break;
            case NoticeKind::NOTICE_KIND_RESUMED:
                $this->log->info("$this->subscription: the subscription is resumed$detail");
                break;
        }
    }

    /** @throws OfframpException if a retry cannot help, or after the option `patience` */
    private function raiseUnlessTransient(ErrorStatus $error): void
    {
        $refusal = $error->refusal();
        if ($refusal !== null) {
            throw $refusal;
        }
        $this->setUnavailable(
            $error->staleTokenError()
            ?? "the sidecar at {$this->options->to->text} is not ready ({$error->getMessage()}): wait a moment, or see "
                . 'its log for what it lacks'
        );
    }
}
