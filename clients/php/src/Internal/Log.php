<?php

declare(strict_types=1);

namespace Offramp\Internal;

use Psr\Log\LoggerInterface;

/**
 * Logs to a PSR-3 logger; without one, warnings go to PHP's error log.
 *
 * @internal
 */
final class Log
{
    public function __construct(private readonly ?LoggerInterface $logger)
    {
    }

    public function info(string $text): void
    {
        $this->logger?->info($text);
    }

    /** @param array<string, mixed> $context */
    public function warning(string $text, array $context = []): void
    {
        if ($this->logger !== null) {
            $this->logger->warning($text, $context);
        } else {
            error_log("offramp: $text");
        }
    }
}
