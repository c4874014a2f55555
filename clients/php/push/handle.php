<?php

declare(strict_types=1);

/**
 * For a script that Offramp calls with batches (`push` of a subscription), over FastCGI or HTTP. This file is all of it.
 *
 *     require 'handle.php';
 *
 *     Offramp\Push\handle(function (Offramp\Push\Record $record): void {
 *         store(json_decode($record->value, true, flags: JSON_THROW_ON_ERROR));
 *     });
 *
 * The handler returns: the record is done. It throws: the record is tried again. It throws Reject: the record can never
 * be done. It throws Overloaded: this record and the rest of the batch come again later, which does not count.
 */

namespace Offramp\Push;

final class Record
{
    /** @param list<array{name: string, value: ?string}> $headers */
    public function __construct(
        /** the same for each delivery */
        public readonly string $id,
        public readonly string $topic,
        public readonly int $lane,
        public readonly int $position,
        public readonly int $timestampMs,
        public readonly ?string $key,
        public readonly ?string $value,
        public readonly array $headers,
        public readonly int $attempt,
        /** an earlier delivery may have done it */
        public readonly bool $possiblyProcessed,
    ) {
    }

    /** The value of the last header of this name. */
    public function header(string $name): ?string
    {
        foreach (array_reverse($this->headers) as $header) {
            if (strcasecmp($header['name'], $name) === 0) {
                return $header['value'];
            }
        }
        return null;
    }
}

/** The record can never be done: a dead letter. */
class Reject extends \RuntimeException
{
}

/** What the handler depends on needs a pause. */
class Overloaded extends \RuntimeException
{
    public function __construct(string $message = '', public readonly ?float $retryAfter = null)
    {
        parent::__construct($message);
    }
}

/**
 * Calls the handler with each record of the batch, and answers.
 *
 * @param callable(Record): mixed $handler
 */
function handle(callable $handler): void
{
    handleBatch(static function (array $records) use ($handler): array {
        $failures = [];
        foreach ($records as $index => $record) {
            try {
                $handler($record);
            } catch (Overloaded $error) {
                for (; $index < count($records); ++$index) {
                    $failures[$index] = $error;
                }
                break;
            } catch (\Throwable $error) {
                $failures[$index] = $error;
            }
        }
        return $failures;
    });
}

/**
 * Calls the handler with all records at once, and answers. The handler returns what failed: a Throwable by the index of
 * its record. If it throws, the whole batch is tried again, and split to find the record that fails.
 *
 * @param callable(list<Record>): array<int, \Throwable> $handler
 */
function handleBatch(callable $handler): void
{
    // What is printed must not get into the answer; a fatal error shows it, and so the batch is no ack.
    ob_start();
    $batch = json_decode((string) file_get_contents('php://input'), true, flags: JSON_THROW_ON_ERROR);
    $records = array_map(static fn (array $record): Record => record($batch['topic'], $record), $batch['records']);
    try {
        $failures = $handler($records);
    } catch (\Throwable $error) {
        error_log((string) $error);
        ob_end_clean();
        http_response_code(500);
        answer(['reason' => reason($error)]);
        return;
    }
    $named = [];
    foreach ($failures as $index => $error) {
        $named[] = ['index' => $index, ...outcome($error)];
    }
    ob_end_clean();
    answer(['offramp' => 1, 'batch' => $batch['batch'], 'failures' => $named]);
}

/** @param array<string, mixed> $record */
function record(string $topic, array $record): Record
{
    return new Record(
        $record['id'],
        $topic,
        $record['lane'],
        $record['position'],
        $record['timestamp_ms'],
        bytes($record, 'key'),
        bytes($record, 'value'),
        array_map(
            static fn (array $header): array => ['name' => $header['name'], 'value' => bytes($header, 'value')],
            $record['headers'],
        ),
        $record['attempt'],
        $record['possibly_processed'],
    );
}

/** @param array<string, mixed> $from */
function bytes(array $from, string $name): ?string
{
    return isset($from["{$name}_base64"]) ? base64_decode($from["{$name}_base64"]) : $from[$name];
}

/** @return array<string, mixed> */
function outcome(\Throwable $error): array
{
    $reason = reason($error);
    return match (true) {
        $error instanceof Reject => ['outcome' => 'reject', 'reason' => $reason],
        $error instanceof Overloaded => [
            'outcome' => 'overloaded', 'reason' => $reason, 'retry_after' => $error->retryAfter,
        ],
        default => ['outcome' => 'nack', 'reason' => $reason],
    };
}

function reason(\Throwable $error): string
{
    return $error instanceof Reject || $error instanceof Overloaded
        ? $error->getMessage()
        : $error::class . ': ' . $error->getMessage();
}

/** @param array<string, mixed> $answer */
function answer(array $answer): void
{
    if (!headers_sent()) {
        header('Content-Type: application/json');
    }
    echo json_encode($answer, JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE);
}
