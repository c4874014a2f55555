<?php

declare(strict_types=1);

namespace Psr\Log {
    // psr/log is optional, and may not be there.
    if (!interface_exists(LoggerInterface::class)) {
        interface LoggerInterface
        {
            public function emergency(string|\Stringable $message, array $context = []): void;

            public function alert(string|\Stringable $message, array $context = []): void;

            public function critical(string|\Stringable $message, array $context = []): void;

            public function error(string|\Stringable $message, array $context = []): void;

            public function warning(string|\Stringable $message, array $context = []): void;

            public function notice(string|\Stringable $message, array $context = []): void;

            public function info(string|\Stringable $message, array $context = []): void;

            public function debug(string|\Stringable $message, array $context = []): void;

            public function log($level, string|\Stringable $message, array $context = []): void;
        }
    }
}

namespace Offramp\Tests\Support {
    /** Records what is logged. */
    final class Logger implements \Psr\Log\LoggerInterface
    {
        /** @var list<string> */
        public array $lines = [];

        /** @param (\Closure(string): void)|null $onLine called after each line */
        public function __construct(private readonly ?\Closure $onLine = null)
        {
        }

        public function emergency(string|\Stringable $message, array $context = []): void
        {
            $this->log('emergency', $message);
        }

        public function alert(string|\Stringable $message, array $context = []): void
        {
            $this->log('alert', $message);
        }

        public function critical(string|\Stringable $message, array $context = []): void
        {
            $this->log('critical', $message);
        }

        public function error(string|\Stringable $message, array $context = []): void
        {
            $this->log('error', $message);
        }

        public function warning(string|\Stringable $message, array $context = []): void
        {
            $this->log('warning', $message);
        }

        public function notice(string|\Stringable $message, array $context = []): void
        {
            $this->log('notice', $message);
        }

        public function info(string|\Stringable $message, array $context = []): void
        {
            $this->log('info', $message);
        }

        public function debug(string|\Stringable $message, array $context = []): void
        {
            $this->log('debug', $message);
        }

        public function log($level, string|\Stringable $message, array $context = []): void
        {
            $this->lines[] = "$level: $message";
            if ($this->onLine !== null) {
                ($this->onLine)("$level: $message");
            }
        }
    }
}
