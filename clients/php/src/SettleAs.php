<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Internal\Outcome;

/**
 * Throw one of its subclasses in a handler to set the outcome of the records that the handler has not settled itself.
 *
 * SettleAs
 * ├── Retry        failed; deliver them again, after the subscription's backoff or after the time given here
 * ├── Reject       never succeeds; dead-letter them now
 * ├── Release      not tried; deliver them again at once, without counting an attempt
 * └── Overloaded   what the handler depends on is overloaded; deliver them again later, without counting an attempt
 *
 * Any other exception of a handler is a `Retry` with the exception as its reason.
 */
abstract class SettleAs extends \Exception
{
    /** @internal */
    abstract public function outcome(): Outcome;
}
