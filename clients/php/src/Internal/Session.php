<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\Exception\ProtocolBroken;
use Offramp\Grpc\Channel;
use Offramp\Grpc\Code;
use Offramp\Grpc\ConnectionFailed;
use Offramp\Grpc\ErrorStatus;
use Offramp\Grpc\Interrupted;
use Offramp\Grpc\Stream;
use Offramp\Options;
use Offramp\Protocol;
use Offramp\V1\Client;
use Offramp\V1\OpenRequest;
use Offramp\V1\OpenResponse;
use Offramp\V1\Welcome;

/**
 * One session with a sidecar: the stream of Open, which only has to stay open, and one Fetch call after the other.
 *
 * @internal
 */
final class Session
{
    /** seconds that the sidecar may take for its welcome */
    private const WELCOME_TIMEOUT = 10.0;
    /** seconds that a call may take beyond the time that it waits for a batch */
    private const FETCH_GRACE = 30.0;
    /** reasons of a call whose session has ended */
    private const SESSION_ENDED = ['SESSION_NOT_FOUND', 'SEQ'];
    /** statuses of a call that was cut off on its way */
    private const CUT_OFF = [Code::DeadlineExceeded, Code::Cancelled];

    private int $seq = 0;
    private readonly string $name;
    /** the sidecar has said that it is over */
    private bool $over = false;
    /** a call was sent, and is to be repeated with the same number and content before any other */
    private bool $unanswered = false;

    private function __construct(
        private readonly Channel $channel,
        private Stream $stream,
        public readonly Welcome $welcome,
    ) {
        $this->name = $welcome->getSession();
    }

    /**
     * A new session, or `$former` itself if the sidecar resumes it.
     *
     * @param callable(): bool $stopped
     * @throws ErrorStatus|ConnectionFailed|Interrupted
     */
    public static function open(
        Channel $channel,
        string $subscription,
        Options $options,
        callable $stopped,
        ?self $former = null,
    ): self {
        $pid = (int) getmypid();
        $client = new Client();
        $client->setLanguage('php');
        $client->setLibrary('offramp');
        $client->setVersion(Protocol::VERSION);
        $client->setProtocolMinor(max(Protocol::MINOR, $options->needsProtocolMinor));
        $client->setNeedsProtocolMinor($options->needsProtocolMinor);
        $client->setPid($pid);
        $client->setName($options->name ?? gethostname() . "-$pid");
        $request = new OpenRequest();
        $request->setSubscription($subscription);
        $request->setClient($client);
        $request->setMaxMessageBytes($options->maxMessageBytes);
        $request->setMaxBatchRecords($options->maxBatchRecords);
        $request->setLeaseMs((int) round(($options->lease ?? 0.0) * 1_000));
        $request->setResumeMs((int) round($options->resume * 1_000));
        $request->setResume($former === null ? '' : $former->name);
        $stream = new Stream($channel->address, 'ConsumerService/Open', $request->serializeToString());
        $bytes = $stream->read(self::WELCOME_TIMEOUT, $stopped);
        if ($bytes === null) {
            throw $stopped() ? new Interrupted() : new ConnectionFailed('it sent no welcome in time');
        }
        $response = new OpenResponse();
        $response->mergeFromString($bytes);
        $welcome = $response->getWelcome();
        if ($welcome === null) {
            throw new ProtocolBroken('the sidecar started a session without a welcome');
        }
        if ($former !== null && $welcome->getSession() === $former->name) {
            $former->stream = $stream;
            return $former;
        }
        return new self($channel, $stream, $welcome);
    }

    /** Whether the sidecar waits for a while when the connection is lost. */
    public function mayBeResumed(): bool
    {
        return !$this->over && (int) $this->welcome->getResumeMs() > 0;
    }

    /** Whether a call was sent that must be repeated before any other. */
    public function hasUnanswered(): bool
    {
        return $this->unanswered;
    }

    /** Whether it is alive, as far as this process can tell without waiting. */
    public function isAlive(): bool
    {
        return $this->stream->isAlive();
    }

    /** Ends it. Batches that are not settled are redelivered as possibly processed. */
    public function end(): void
    {
        $this->stream->cancel();
    }

    /**
     * Settles, and leases up to `batches` batches, waiting up to `wait` seconds for the first. Returns early, perhaps
     * with batches, when this process stops. Returns the bytes of a FetchResponse; null when the session has ended or
     * the deadline has expired: then it is not known what was settled, and the caller settles again in another session.
     *
     * @param list<string> $settlements
     * @throws ErrorStatus when the sidecar refuses the request; a repeated call has the same number and is no duplicate
     */
    public function fetch(array $settlements, int $batches, float $wait, StopDeadline $deadline): ?string
    {
        $backoff = new Backoff();
        $ends = microtime(true) + $wait;
        while (true) {
            $waitMs = (int) round($wait * 1_000);
            // A signal ends the wait for a batch at once, but not a call that does not wait, nor one whose answer has
            // begun to arrive.
            $stopped = static fn (bool $arriving): bool =>
                $waitMs > 0 && !$arriving ? $deadline->stopping() : $deadline->expired();
            try {
                $this->unanswered = true;
                $bytes = $this->channel->call(
                    'ConsumerService/Fetch',
                    Wire::fetchRequest($this->name, $this->seq + 1, $settlements, $batches, $waitMs),
                    $deadline->limit($wait + self::FETCH_GRACE),
                    $stopped,
                );
                $this->seq++;
                $this->unanswered = false;
                return $bytes;
            } catch (Interrupted) {
                // The sidecar may have leased a batch to the abandoned call. A call with the same number, without
                // waiting, returns the same answer, so that the batch can be released.
                $wait = 0.0;
            } catch (ConnectionFailed) {
                if (!$this->isAlive()) {
                    return null;
                }
                // Repeated with the same number, so a lost answer costs nothing.
                $deadline->pause($backoff);
            } catch (ErrorStatus $error) {
                if ($error->reason === 'SUPERSEDED' || in_array($error->status, self::CUT_OFF, true)) {
                    $deadline->pause($backoff);
                } elseif ($error->status === Code::Unavailable && $this->isAlive() && !$deadline->stopping()) {
                    // The sidecar is stopping. Until it has, the session lives and its batches can be settled.
                    if (microtime(true) >= $ends) {
                        return '';
                    }
                    $deadline->pause($backoff);
                } elseif ($error->status === Code::Unavailable || in_array($error->reason, self::SESSION_ENDED, true)) {
                    $this->over = $error->reason !== '';
                    return null;
                } else {
                    // A call that is refused has not used up its number.
                    $this->unanswered = false;
                    throw $error;
                }
            }
            if ($deadline->expired()) {
                return null;
            }
        }
    }
}
