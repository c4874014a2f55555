<?php

declare(strict_types=1);

namespace Offramp;

use Offramp\Internal\Verdict;

/**
 * Throw one of its kinds in a handler to say what becomes of the records that the handler has not settled itself.
 *
 * SettleAs
 * ├── Retry        failed; deliver it again, after the subscription's backoff or after the time given here
 * ├── Reject       will never succeed; dead-letter it now
 * ├── Release      not tried; deliver it again at once, without counting an attempt
 * └── Overloaded   what is behind the handler asks for less; deliver it again later, without counting an attempt
 *
 * Any other exception of a handler is a `Retry` with the exception as its reason.
 */
abstract class SettleAs extends \Exception
{
    /** @internal */
    abstract public function verdict(): Verdict;
}
