<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Exception\InvalidRequest;
use Offramp\Exception\OfframpException;
use Offramp\Exception\OutOfRoom;
use Offramp\Exception\Unavailable;
use Offramp\Grpc\Address;
use Offramp\Grpc\ConnectionFailed;
use Offramp\Grpc\Channel;
use Offramp\Grpc\Code;
use Offramp\Grpc\ErrorStatus;
use Offramp\Grpc\Credentials;
use Offramp\Internal\Backoff;
use Offramp\Internal\Log;
use Offramp\Internal\Requirements;
use Offramp\V1\Header as WireHeader;
use Offramp\V1\Message as WireMessage;
use Offramp\V1\PublishRequest;
use Offramp\V1\PublishResponse;

/**
 * Publishes to the broker of a `subscription`, or to a `broker` by its name.
 *
 * Every call waits for the sidecar if it is not there, and returns when the broker has the messages durably. It throws
 * `Refused` if a retry cannot help, and `Unavailable` if it did not succeed within `timeout` seconds: then some
 * messages may have been published, and publishing again may duplicate them. Open it after a fork.
 */
final class Publisher
{
    /** the details of the error that gRPC itself returns for such a request, before the sidecar sees it */
    private const TOO_LARGE = 'SERVER: Received message larger than max';

    private readonly Channel $channel;

    /**
     * @param string|null $address and those after it as in `Options`
     * @throws \InvalidArgumentException
     */
    public function __construct(
        private readonly ?string $subscription = null,
        private readonly ?string $broker = null,
        ?string $address = null,
        private readonly float $timeout = 30.0,
        #[\SensitiveParameter] ?string $token = null,
        ?string $tokenFile = null,
        ?string $ca = null,
        ?string $certificate = null,
        ?string $key = null,
        ?string $serverName = null,
    ) {
        if (($subscription ?? '') === '' xor ($broker ?? '') === '') {
            Requirements::check();
            $warn = (new Log(null))->warning(...);
            $credentials = new Credentials($token, $tokenFile, $ca, $certificate, $key, $serverName, $warn);
            $this->channel = new Channel(Address::of($address, $credentials));
            return;
        }
        throw new \InvalidArgumentException('either subscription (to publish to its broker) or broker must be given');
    }

    /**
     * Publishes one message. Returns where it was published.
     *
     * @param iterable<string|int, string|null|Header> $headers values by name, or Header objects
     * @throws OfframpException
     */
    public function publish(
        string $topic,
        ?string $value,
        ?string $key = null,
        iterable $headers = [],
        ?int $lane = null,
    ): Place {
        return $this->publishMany($topic, [new Message($value, $key, $headers, $lane)])[0];
    }

    /**
     * Publishes messages to one topic in one call. Returns where they were published, in their order.
     *
     * @param iterable<Message> $messages
     * @return list<Place>
     * @throws OfframpException
     */
    public function publishMany(string $topic, iterable $messages): array
    {
        $request = new PublishRequest();
        if (($this->subscription ?? '') !== '') {
            $request->setSubscription($this->subscription);
        } else {
            $request->setBroker($this->broker);
        }
        $request->setTopic($topic);
        $encoded = [];
        foreach ($messages as $message) {
            $encoded[] = self::encode($message);
        }
        $request->setMessages($encoded);
        $response = new PublishResponse();
        $response->mergeFromString($this->call($request->serializeToString()));
        $places = [];
        foreach ($response->getPublished() as $one) {
            $places[] = new Place($one->getLane(), (int) $one->getPosition());
        }
        return $places;
    }

    public function close(): void
    {
        $this->channel->reset();
    }

    private function call(string $request): string
    {
        $ends = microtime(true) + $this->timeout;
        $backoff = new Backoff();
        $cutShort = false;
        while (true) {
            try {
                $left = max($ends - microtime(true), 0.001);
                return $this->channel->call('PublishService/Publish', $request, $left);
            } catch (ErrorStatus $error) {
                $refusal = $error->refusal();
                if ($refusal !== null) {
                    throw $refusal;
                }
                if ($error->staleTokenError() !== null) {
                    throw new Unavailable($error->staleTokenError(), 0, $error);
                }
                $to = $this->channel->address->text;
                $details = $error->getMessage() === '' ? $error->status->name : $error->getMessage();
                if ($error->status === Code::ResourceExhausted && str_contains($details, self::TOO_LARGE)) {
                    throw $this->tooLarge($request, $error);
                }
                throw $error->status === Code::ResourceExhausted
                    ? new OutOfRoom("$to: $details", 0, $error)
                    : new Unavailable("$to: $details; some of it may have been published", 0, $error);
            } catch (ConnectionFailed $error) {
                if ($cutShort && $error->cutShort) {
                    throw $this->tooLarge($request, $error);
                }
                // Retried once, since the sidecar may have stopped at that moment.
                $cutShort = $error->cutShort;
                // Retry only what the sidecar cannot have read: anything else may have published something.
                $why = $this->channel->address->explain($error);
                if (!$error->unsent && !$cutShort) {
                    throw new Unavailable("$why; some of it may have been published", 0, $error);
                }
                if (microtime(true) >= $ends) {
                    throw new Unavailable($why, 0, $error);
                }
                $backoff->pause(static fn (): bool => microtime(true) >= $ends);
            }
        }
    }

    private function tooLarge(string $request, \Throwable $error): InvalidRequest
    {
        return new InvalidRequest(
            sprintf(
                "%s: a request of %d bytes is more than the sidecar's listen.max_request_bytes allows: publish fewer "
                . 'or smaller messages at a time',
                $this->channel->address->text,
                strlen($request),
            ),
            0,
            $error,
        );
    }

    private static function encode(Message $message): WireMessage
    {
        $encoded = new WireMessage();
        if ($message->value !== null) {
            $encoded->setValue($message->value);
        }
        if ($message->key !== null) {
            $encoded->setKey($message->key);
        }
        if ($message->lane !== null) {
            $encoded->setLane($message->lane);
        }
        $encoded->setTimestampMs($message->timestampMs);
        $headers = [];
        foreach ($message->headers as $name => $header) {
            [$name, $value] = $header instanceof Header ? [$header->name, $header->value] : [(string) $name, $header];
            $one = new WireHeader();
            $one->setName($name);
            if ($value !== null) {
                $one->setValue($value);
            }
            $headers[] = $one;
        }
        $encoded->setHeaders($headers);
        return $encoded;
    }
}
