<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Offramp\Exception\ProtocolBroken;
use Offramp\Grpc\Broken;
use Offramp\Grpc\Channel;
use Offramp\Grpc\Code;
use Offramp\Grpc\Failure;
use Offramp\Grpc\Interrupted;
use Offramp\Grpc\Stream;
use Offramp\Options;
use Offramp\Protocol;
use Offramp\V1\Client;
use Offramp\V1\OpenRequest;
use Offramp\V1\OpenResponse;
use Offramp\V1\Welcome;

/**
 * One session with a sidecar: the stream of Open, which is held and left alone, and the calls of Fetch in turn.
 *
 * @internal
 */
final class Session
{
    /** seconds that the sidecar may take for its welcome */
    private const WELCOME = 10.0;
    /** seconds that a call may take beyond the time that it waits for a batch */
    private const GRACE = 30.0;
    /** what a call is answered with when the session is no more */
    private const OVER = [Code::NotFound, Code::Unavailable, Code::FailedPrecondition];

    private int $seq = 0;
    private readonly string $name;

    private function __construct(
        private readonly Channel $channel,
        private readonly Stream $stream,
        public readonly Welcome $welcome,
    ) {
        $this->name = $welcome->getSession();
    }

    /**
     * @param callable(): bool $stopped
     * @throws Failure|Broken|Interrupted
     */
    public static function open(Channel $channel, string $subscription, Options $options, callable $stopped): self
    {
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
        $request->setLeaseMs((int) round(($options->lease ?? 0.0) * 1_000));
        $stream = new Stream($channel->address, 'ConsumerService/Open', $request->serializeToString());
        $bytes = $stream->read(self::WELCOME, $stopped);
        if ($bytes === null) {
            throw $stopped() ? new Interrupted() : new Broken('it did not say welcome in time');
        }
        $response = new OpenResponse();
        $response->mergeFromString($bytes);
        $welcome = $response->getWelcome();
        if ($welcome === null) {
            throw new ProtocolBroken('the sidecar began a session without a welcome');
        }
        return new self($channel, $stream, $welcome);
    }

    /** Whether it lives, as far as can be seen without waiting. */
    public function lives(): bool
    {
        return $this->stream->lives();
    }

    /** End it. What is held and not settled comes back, counted as possibly processed. */
    public function end(): void
    {
        $this->stream->cancel();
    }

    /**
     * Settle, and lease up to so many batches, waiting up to so many seconds for the first. Returns early, perhaps
     * with batches, when this process is to stop. The bytes of a FetchResponse; null when the session or the farewell
     * is over: then whether something was settled is not known, and is to be said again in another session.
     *
     * @param list<string> $settlements
     * @throws Failure for a request that the sidecar does not take; asked again, it is the same request to the sidecar
     */
    public function fetch(array $settlements, int $batches, float $wait, Farewell $farewell): ?string
    {
        $backoff = new Backoff();
        $ends = microtime(true) + $wait;
        while (true) {
            $waitMs = (int) round($wait * 1_000);
            // A signal ends the wait for a batch, but not at once what waits for nothing, or has begun to come.
            $stopped = static fn (bool $coming): bool =>
                $waitMs > 0 && !$coming ? $farewell->begun() : $farewell->over();
            try {
                $bytes = $this->channel->call(
                    'ConsumerService/Fetch',
                    Wire::fetchRequest($this->name, $this->seq + 1, $settlements, $batches, $waitMs),
                    $farewell->limit($wait + self::GRACE),
                    $stopped,
                );
                $this->seq++;
                return $bytes;
            } catch (Interrupted) {
                // The sidecar may have leased a batch to the call that was given up. Asking again for the same
                // number, and without waiting, brings what it would have brought, so that it can be given back.
                $wait = 0.0;
            } catch (Broken) {
                if (!$this->lives()) {
                    return null;
                }
                // The same number again: a lost answer costs nothing.
                $farewell->pause($backoff);
            } catch (Failure $failure) {
                if (in_array($failure->status, [Code::Aborted, Code::DeadlineExceeded, Code::Cancelled], true)) {
                    $farewell->pause($backoff);
                } elseif ($failure->status === Code::Unavailable && $this->lives() && !$farewell->begun()) {
                    // It is stopping. The session lives until it has stopped, and with it what else is in hand.
                    if (microtime(true) >= $ends) {
                        return '';
                    }
                    $farewell->pause($backoff);
                } elseif (in_array($failure->status, self::OVER, true)) {
                    // It has stopped, or does not know the session any more.
                    return null;
                } else {
                    throw $failure;
                }
            }
            if ($farewell->over()) {
                return null;
            }
        }
    }
}
