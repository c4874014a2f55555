<?php

declare(strict_types=1);

namespace Offramp\Exception;

use Offramp\Place;

/**
 * Some messages of a call are published, and others are not. Publishing all of them again duplicates the former;
 * publishing the others loses nothing.
 */
final class PartlyPublished extends OfframpException
{
    /** @param list<Place|Refused|Unavailable> $results of each message, in order */
    public function __construct(string $message, public readonly array $results)
    {
        parent::__construct($message);
    }

    /** No message is refused: all of those that failed may succeed if they are published again. */
    public function isRetryable(): bool
    {
        foreach ($this->results as $result) {
            if ($result instanceof Refused) {
                return false;
            }
        }
        return true;
    }
}
