<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Grpc\Address;
use Offramp\Grpc\Credentials;
use Offramp\Internal\Log;

/** Options of consumers and workers: `new Options(address: '127.0.0.1:4770', lease: 30)`. All have defaults. */
final class Options
{
    /** @internal */
    public readonly Address $to;

    /**
     * @param string|null $address `unix:/path`, `/path` or `host:port`. Default: the environment's OFFRAMP_ADDRESS, or
     *     unix:/run/offramp/offramp.sock
     * @param string|null $name this worker's name in the status and in dead letters. Default: host and pid
     * @param float|null $lease seconds; ask for leases with this deadline, to be extended by `$batch->extend()`.
     *     Default: a lease lasts as long as the session, up to the subscription's `lease.max`
     * @param int $maxMessageBytes the largest message that this process accepts, and so the largest record
     * @param int $maxBatchRecords ask for batches of at most this many records: 1 for one at a time; 0: as the subscription
     *     says, which is never exceeded
     * @param float|null $patience seconds to wait for an unavailable sidecar before `Unavailable` is thrown. Default:
     *     as long as it takes
     * @param float $resume seconds for which the sidecar waits for this process when a TCP connection is lost: what is
     *     in hand stays in hand if it is there again in time. Others get it only after that time, even if this process
     *     died. Never longer than the sidecar's `listen.resume_max`; without effect on a unix socket
     * @param bool $signals drain on SIGTERM (workers: on SIGINT and SIGQUIT too), with ext-pcntl
     * @param \Psr\Log\LoggerInterface|null $logger default: warnings go to PHP's error log
     * @param (\Closure(Batch, SettleResult): mixed)|null $onResult called with the result of every settlement
     * @param string|null $token the token for a sidecar that asks for one. Default: OFFRAMP_TOKEN
     * @param string|null $tokenFile a file with the token in its first line, read for each call; if it has none at the
     *     moment, the last one is used. Default: OFFRAMP_TOKEN_FILE
     * @param string|null $ca a PEM file: the authorities to trust over TLS. Default: OFFRAMP_CA, or the system's
     * @param string|null $certificate a PEM file: the client certificate, for a sidecar that asks for one. Default:
     *     OFFRAMP_CERTIFICATE
     * @param string|null $key its private key. Default: OFFRAMP_KEY
     * @param string|null $serverName the name in the sidecar's certificate, if it differs from the address. Default:
     *     OFFRAMP_SERVER_NAME
     * @param int $needsProtocolMinor for tests only
     * @throws \InvalidArgumentException which names the option
     */
    public function __construct(
        ?string $address = null,
        public readonly ?string $name = null,
        public readonly ?float $lease = null,
        public readonly int $maxMessageBytes = Protocol::DEFAULT_MESSAGE_BYTES,
        public readonly ?float $patience = null,
        public readonly bool $signals = true,
        public readonly ?\Psr\Log\LoggerInterface $logger = null,
        public readonly ?\Closure $onResult = null,
        #[\SensitiveParameter] ?string $token = null,
        ?string $tokenFile = null,
        ?string $ca = null,
        ?string $certificate = null,
        ?string $key = null,
        ?string $serverName = null,
        public readonly int $needsProtocolMinor = Protocol::NEEDS_MINOR,
        public readonly int $maxBatchRecords = 0,
        public readonly float $resume = 0.0,
    ) {
        $warn = (new Log($logger))->warning(...);
        $credentials = new Credentials($token, $tokenFile, $ca, $certificate, $key, $serverName, $warn);
        $this->to = Address::of($address, $credentials);
        if ($lease !== null && !($lease >= 0.001)) {
            throw new \InvalidArgumentException("lease: $lease seconds is too short; leave it out to have no deadline");
        }
        if ($maxBatchRecords < 0) {
            throw new \InvalidArgumentException("maxBatchRecords: $maxBatchRecords is less than 0");
        }
        if ($maxMessageBytes < 4_096) {
            throw new \InvalidArgumentException("maxMessageBytes: $maxMessageBytes is less than 4096");
        }
        if (!($resume >= 0 && $resume <= 86_400)) {
            throw new \InvalidArgumentException("resume: $resume is not a number of seconds from 0 to 86400");
        }
        if ($patience !== null && !($patience >= 0)) {
            throw new \InvalidArgumentException("patience: $patience is not a number of seconds");
        }
    }
}
