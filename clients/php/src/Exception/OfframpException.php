<?php

declare(strict_types=1);

namespace Offramp\Exception;

/**
 * The base of all exceptions of this package. Messages name what is wrong, the value, and what to do.
 *
 * OfframpException
 * ├── Refused              the sidecar refuses, a retry does not help: a person must change something
 * │   ├── NotFound         no such subscription, broker or topic; the message lists those that exist
 * │   ├── InvalidRequest   an option or a message that the sidecar can never accept
 * │   ├── Incompatible     no sidecar at that address, or one whose protocol version this client cannot use
 * │   └── Forbidden        the client is not authenticated, or lacks the right
 * ├── Unavailable          not now; a retry may help
 * │   └── OutOfRoom        the broker has no room for what is published
 * ├── PartlyPublished      some messages of a call are published and others are not; has the result of each
 * ├── AlreadySettled       a batch or a record was settled a second time
 * ├── Drained              a batch was asked for after `drain` or SIGTERM: none will come
 * ├── Closed               used after it was closed
 * ├── Forked               opened before a fork and used after it
 * ├── MissingExtension     PHP lacks something that this package needs; the message says how to get it
 * └── ProtocolBroken       the sidecar broke a rule of the protocol
 *
 * Invalid options throw \InvalidArgumentException. What a handler throws to set the outcome of a batch
 * (`Offramp\Retry`, `Offramp\Reject`, ...) is not an error; see `Offramp\SettleAs`.
 */
class OfframpException extends \RuntimeException
{
    /**
     * Why, for programs: a name of `offramp.v1.ErrorReason`, such as SUBSCRIPTION_NOT_FOUND; empty if the sidecar did
     * not say it.
     */
    public string $reason = '';

    /** @internal */
    public function withReason(string $reason): static
    {
        $this->reason = $reason;
        return $this;
    }
}
