<?php

declare(strict_types=1);

namespace Offramp\Exception;

/**
 * Everything that can go wrong, as one tree. Texts are for people: what, which value, what to do.
 *
 * OfframpException
 * ├── Refused              the sidecar said no and would say no again: a person must change something
 * │   ├── NotFound         no such subscription, broker or topic; the text lists those there are
 * │   ├── InvalidRequest   an option or a message that the sidecar can never take
 * │   ├── Incompatible     nobody at that address speaks a version of Offramp's protocol that this client can work with
 * │   └── Forbidden        the sidecar does not let this client in
 * ├── Unavailable          not now; a retry may help
 * │   └── OutOfRoom        the broker has no room for what is published
 * ├── AlreadySettled       a batch or a record was settled a second time
 * ├── Closed               used after it was closed
 * ├── Forked               opened before a fork and used after it
 * ├── MissingExtension     PHP lacks something that this package needs; the text says how to get it
 * └── ProtocolBroken       the sidecar broke a rule of the protocol
 *
 * Options that make no sense are \InvalidArgumentException. What a handler throws to say how a batch is to be settled
 * (`Offramp\Retry`, `Offramp\Reject`, ...) is no error; see `Offramp\SettleAs`.
 */
class OfframpException extends \RuntimeException
{
}
