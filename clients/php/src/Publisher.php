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
use Offramp\Grpc\ErrorStatus;
use Offramp\Grpc\Credentials;
use Offramp\Internal\Backoff;
use Offramp\Internal\Log;
use Offramp\Internal\PublishResults;
use Offramp\Internal\Requirements;
use Offramp\V1\GetLimitsRequest;
use Offramp\V1\GetLimitsResponse;
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
    /** bytes and messages that any sidecar accepts in one request */
    private const SMALL_BYTES = 64 << 10;
    private const SMALL_MESSAGES = 1_000;

    private readonly Channel $channel;
    /** what the sidecar accepts in one request, once a large one was to be sent */
    private ?GetLimitsResponse $limits = null;

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
     * @throws OfframpException `PartlyPublished` if only some are published
     */
    public function publishMany(string $topic, iterable $messages): array
    {
        $request = $this->target(new PublishRequest());
        $request->setTopic($topic);
        $encoded = [];
        foreach ($messages as $message) {
            $encoded[] = self::encode($message);
        }
        $request->setMessages($encoded);
        $ends = microtime(true) + $this->timeout;
        $bytes = $request->serializeToString();
        $this->checkSize(strlen($bytes), count($encoded), $ends);
        $response = new PublishResponse();
        $response->mergeFromString($this->call('Publish', $bytes, $ends));
        return PublishResults::places($response, $this->channel->address->text);
    }

    public function close(): void
    {
        $this->channel->reset();
    }

    /**
     * @template T of PublishRequest|GetLimitsRequest
     * @param T $request
     * @return T
     */
    private function target(PublishRequest|GetLimitsRequest $request): PublishRequest|GetLimitsRequest
    {
        if (($this->subscription ?? '') !== '') {
            $request->setSubscription($this->subscription);
        } else {
            $request->setBroker($this->broker);
        }
        return $request;
    }

    /** @throws OfframpException `InvalidRequest` for what the sidecar would refuse */
    private function checkSize(int $bytes, int $messages, float $ends): void
    {
        if ($this->limits === null) {
            if ($bytes <= self::SMALL_BYTES && $messages <= self::SMALL_MESSAGES) {
                return;
            }
            $limits = new GetLimitsResponse();
            $asked = $this->target(new GetLimitsRequest())->serializeToString();
            $limits->mergeFromString($this->call('GetLimits', $asked, $ends));
            $this->limits = $limits;
        }
        $sizes = [
            'bytes (listen.max_request_bytes)' => [$bytes, (int) $this->limits->getMaxRequestBytes()],
            'messages' => [$messages, $this->limits->getMaxMessages()],
        ];
        foreach ($sizes as $what => [$size, $most]) {
            if ($size > $most) {
                throw new InvalidRequest(
                    "{$this->channel->address->text}: the request has $size $what, and the sidecar accepts $most: "
                    . 'publish fewer or smaller messages at a time'
                );
            }
        }
    }

    private function call(string $method, string $request, float $ends): string
    {
        $backoff = new Backoff();
        while (true) {
            try {
                $left = max($ends - microtime(true), 0.001);
                return $this->channel->call("PublishService/$method", $request, $left);
            } catch (ErrorStatus $error) {
                // The next call may reach another sidecar, with other limits.
                $this->limits = null;
                $refusal = $error->refusal();
                if ($refusal !== null) {
                    throw $refusal;
                }
                if ($error->staleTokenError() !== null) {
                    throw new Unavailable($error->staleTokenError(), 0, $error);
                }
                $to = $this->channel->address->text;
                $details = $error->getMessage() === '' ? $error->status->name : $error->getMessage();
                $failure = $error->reason === 'BROKER_FULL'
                    ? new OutOfRoom("$to: $details", 0, $error)
                    : new Unavailable("$to: $details; some of it may have been published", 0, $error);
                throw $failure->withReason($error->reason);
            } catch (ConnectionFailed $error) {
                $this->limits = null;
                // Retry only what the sidecar cannot have read: anything else may have published something.
                $why = $this->channel->address->explain($error);
                if (!$error->unsent) {
                    throw new Unavailable("$why; some of it may have been published", 0, $error);
                }
                if (microtime(true) >= $ends) {
                    throw new Unavailable($why, 0, $error);
                }
                $backoff->pause(static fn (): bool => microtime(true) >= $ends);
            }
        }
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
        $encoded->setDeliverAfterMs((int) round($message->deliverAfter * 1_000));
        $encoded->setDeduplicationId($message->deduplicationId);
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
        if ($message->eventTime !== null) {
            $headers[] = new WireHeader(['name' => Message::EVENT_TIME, 'value' => self::time($message->eventTime)]);
        }
        if ($message->contentType !== '') {
            $headers[] = new WireHeader(['name' => Message::CONTENT_TYPE, 'value' => $message->contentType]);
        }
        $encoded->setHeaders($headers);
        return $encoded;
    }

    /** As RFC 3339, in UTC. */
    private static function time(\DateTimeInterface $time): string
    {
        $moment = \DateTimeImmutable::createFromInterface($time)->setTimezone(new \DateTimeZone('UTC'));
        return $moment->format((int) $moment->format('u') === 0 ? 'Y-m-d\TH:i:s\Z' : 'Y-m-d\TH:i:s.u\Z');
    }
}
