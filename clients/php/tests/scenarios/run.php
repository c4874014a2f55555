<?php

/*
 * The scenarios of clients/SCENARIOS.md: `php run.php <scenario>`.
 */

declare(strict_types=1);

namespace Offramp\Tests\Scenarios;

use Offramp\Batch;
use Offramp\Consumer;
use Offramp\Exception\Drained;
use Offramp\Exception\Incompatible;
use Offramp\Exception\NotFound;
use Offramp\Internal\Outcome;
use Offramp\Message;
use Offramp\Options;
use Offramp\Overloaded;
use Offramp\Pool;
use Offramp\Publisher;
use Offramp\Record;
use Offramp\Reject;
use Offramp\Release;
use Offramp\Retry;
use Offramp\SettleStatus;
use Offramp\Worker;

require __DIR__ . '/../../autoload.php';

/** seconds to wait for a batch */
const BATCH_TIMEOUT = 60.0;

/** An expectation of the scenario does not hold. */
final class Failed extends \Exception
{
}

function setting(string $name): string
{
    return (string) getenv("SCENARIO_$name");
}

function say(string ...$words): void
{
    fwrite(STDOUT, implode(' ', $words) . "\n");
    fflush(STDOUT);
}

function waitForGo(): void
{
    expect(fgets(STDIN) !== false, 'the harness closed standard input instead of sending go');
}

function expect(bool $holds, string $what): void
{
    if (!$holds) {
        throw new Failed($what);
    }
}

function equal(mixed $seen, mixed $wanted): void
{
    expect($seen === $wanted, var_export($seen, true) . ' instead of ' . var_export($wanted, true));
}

function consumer(mixed ...$options): Consumer
{
    return new Consumer(setting('SUBSCRIPTION'), new Options(...$options));
}

function take(Consumer $consumer): Batch
{
    return $consumer->take(BATCH_TIMEOUT) ?? throw new Failed('no batch arrived');
}

function ackAndCheck(Batch $batch): void
{
    equal($batch->ack()->status, SettleStatus::Settled);
}

function onlyRecord(Batch $batch): Record
{
    equal(count($batch), 1);
    return $batch[0];
}

function isFirst(Record $record): void
{
    equal([$record->attempt, $record->possiblyProcessed], [1, false]);
}

function isRedelivered(Record $record, bool $possiblyProcessed): void
{
    equal([$record->attempt, $record->possiblyProcessed], [2, $possiblyProcessed]);
}

/** Handles one record, which is delivered once for each of these handlers; the worker stops after the last one. */
function handleDeliveries(array $handlers, mixed ...$options): void
{
    $failure = null;
    $worker = null;
    $handle = static function (Batch $batch) use (&$handlers, &$failure, &$worker): void {
        $handler = array_shift($handlers);
        if ($handlers === []) {
            $worker->drain();
        }
        try {
            $handler(onlyRecord($batch));
        } catch (Failed $failed) {
            $failure = $failed;
            $worker->drain();
        }
    };
    $worker = new Worker(setting('SUBSCRIPTION'), $handle, new Options(...$options));
    $worker->run();
    if ($failure !== null) {
        throw $failure;
    }
    equal($handlers, []);
}

function holdUntilKilled(\Closure $about): void
{
    $consumer = consumer();
    $batch = take($consumer);
    equal(count($batch), 3);
    if (setting('PART') === '1') {
        say('holding', $about());
        while (true) {
            sleep(60);
        }
    }
    foreach ($batch as $record) {
        isRedelivered($record, true);
    }
    ackAndCheck($batch);
    $consumer->close();
}

function echoAll(mixed ...$options): void
{
    $consumer = consumer(...$options);
    $publisher = new Publisher(subscription: setting('SUBSCRIPTION'));
    for ($done = 0; $done < (int) setting('RECORDS'); $done += count($batch)) {
        $batch = take($consumer);
        foreach ($batch as $record) {
            $publisher->publish(setting('REPLY_TOPIC'), $record->value, $record->key, $record->headers);
        }
        ackAndCheck($batch);
    }
    $consumer->close();
}

function expectRefusal(string $subscription, string $kind, mixed ...$options): void
{
    try {
        (new Consumer($subscription, new Options(...$options)))->take(BATCH_TIMEOUT);
    } catch (\Throwable $error) {
        expect($error instanceof $kind, $error::class . " instead of $kind: {$error->getMessage()}");
        say('refused', $error->reason, (string) preg_replace('/\s+/', ' ', $error->getMessage()));
        return;
    }
    throw new Failed('it was not refused');
}

/** Several workers: in PHP these are processes. */
function pool(int $processes, \Closure $handler): void
{
    equal((new Pool(static fn () => new Worker(setting('SUBSCRIPTION'), $handler), $processes))->run(), 0);
}

$scenarios = [
    // Outcomes

    'plain_ack' => static function (): void {
        $seen = [];
        $consumer = consumer();
        foreach ($consumer as $batch) {
            foreach ($batch as $record) {
                isFirst($record);
                expect(!isset($seen[$record->value]), "$record->value came twice");
                $seen[$record->value] = true;
            }
            $batch->ack();
            if (count($seen) >= (int) setting('RECORDS')) {
                break;
            }
        }
        $consumer->close();
        ksort($seen);
        equal(array_keys($seen), range(0, (int) setting('RECORDS') - 1));
    },

    'nack_then_success' => static fn () => handleDeliveries([
        static function (Record $record): void {
            isFirst($record);
            throw new \RuntimeException('not yet');
        },
        static fn (Record $record) => isRedelivered($record, false),
    ]),

    'settle_per_record' => static function (): void {
        $consumer = consumer();
        $batch = take($consumer);
        foreach ($batch as $index => $record) {
            equal($record->value, (string) $index);
        }
        $batch[4]->nack('four');
        $batch[5]->reject('five');
        $batch[6]->release();
        ackAndCheck($batch);
        $again = [];
        while (count($again) < 2) {
            $batch = take($consumer);
            foreach ($batch as $record) {
                $again[$record->value] = [$record->attempt, $record->possiblyProcessed];
            }
            ackAndCheck($batch);
        }
        ksort($again);
        equal($again, [4 => [2, false], 6 => [1, false]]);
        $consumer->close();
    },

    'partial_settle' => static function (): void {
        $consumer = consumer();
        $batch = take($consumer);
        equal(count($batch), 10);
        for ($index = 0; $index < 4; $index++) {
            $batch[$index]->ack();
        }
        equal($batch->flush()?->status, SettleStatus::Settled);
        say('flushed');
        waitForGo();
        ackAndCheck($batch);
        $consumer->close();
    },

    'reject' => static fn () => handleDeliveries(
        [static fn () => throw new Reject('a bad card ✗')],
        name: 'scenario-worker',
    ),

    'release' => static fn () => handleDeliveries([static fn () => throw new Release(), isFirst(...)]),

    'overloaded' => static fn () => handleDeliveries([static fn () => throw new Overloaded(after: 0.05), isFirst(...)]),

    'chosen_delay' => static function (): void {
        $retriedAt = 0;
        handleDeliveries([
            static function () use (&$retriedAt): void {
                $retriedAt = hrtime(true);
                throw new Retry('later', after: 0.3);
            },
            static function (Record $record) use (&$retriedAt): void {
                isRedelivered($record, false);
                expect(hrtime(true) - $retriedAt >= 300_000_000, 'it came too early');
            },
        ]);
    },

    'poison_isolated' => static function (): void {
        $handler = static function (Batch $batch): void {
            foreach ($batch as $record) {
                if ($record->value === 'poison') {
                    throw new \RuntimeException('poison found');
                }
            }
            say('did', (string) count($batch));
        };
        (new Worker(setting('SUBSCRIPTION'), $handler))->run();
    },

    // Leases

    'lease_expiry' => static function (): void {
        $slow = consumer(lease: 3.0);
        $held = take($slow);
        equal($held->leaseFor, 3.0);
        $fast = consumer();
        $batch = take($fast);
        isRedelivered(onlyRecord($batch), true);
        ackAndCheck($batch);
        $fast->close();
        $result = $held->ack();
        equal([$result->status, $result->stale], [SettleStatus::Stale, [0]]);
        $slow->close();
    },

    'lease_extended' => static function (): void {
        $consumer = consumer(lease: 5.0);
        $batch = take($consumer);
        $lasts = $batch->extend(60);
        expect($lasts > 50 && $lasts <= 60, "the extended lease lasts $lasts s");
        say('holding');
        waitForGo();
        ackAndCheck($batch);
        $consumer->close();
    },

    'killed_while_holding' => static fn () => holdUntilKilled(static fn () => ''),

    'child_lives_on' => static fn () => holdUntilKilled(static function (): string {
        static $process;
        $process = proc_open(['sleep', '600'], [], $pipes);
        return (string) proc_get_status($process)['pid'];
    }),

    'blocked' => static function (): void {
        $consumer = consumer();
        $batch = take($consumer);
        say('holding');
        waitForGo();
        ackAndCheck($batch);
        $batch = take($consumer);
        isFirst(onlyRecord($batch));
        ackAndCheck($batch);
        $consumer->close();
    },

    'connection_cut' => static function (): void {
        $consumer = consumer(resume: 30.0);
        ackAndCheck(take($consumer));
        $batch = take($consumer);
        say('holding');
        waitForGo();
        ackAndCheck($batch);
        $batch = take($consumer);
        isFirst(onlyRecord($batch));
        ackAndCheck($batch);
        $consumer->close();
    },

    // Sidecars

    'sidecar_comes_later' => static function (): void {
        $consumer = consumer();
        say('started');
        ackAndCheck(take($consumer));
        $consumer->close();
    },

    'sidecar_killed' => static function (): void {
        $consumer = consumer();
        $batch = take($consumer);
        say('holding');
        waitForGo();
        equal($batch->ack()->status, SettleStatus::Unknown);
        $again = take($consumer);
        equal(onlyRecord($again)->id(), onlyRecord($batch)->id());
        expect(onlyRecord($again)->possiblyProcessed, 'it is not known to be possibly processed');
        ackAndCheck($again);
        say('again');
        $batch = take($consumer);
        equal([onlyRecord($batch)->value, onlyRecord($batch)->attempt], ['1', 1]);
        ackAndCheck($batch);
        $consumer->close();
    },

    'sidecar_drained' => static function (): void {
        $consumer = consumer();
        $batch = take($consumer);
        say('holding');
        waitForGo();
        ackAndCheck($batch);
        say('settled');
        $batch = take($consumer);
        equal([onlyRecord($batch)->value, onlyRecord($batch)->attempt], ['1', 1]);
        ackAndCheck($batch);
        $consumer->close();
    },

    'drain' => static function (): void {
        $first = true;
        $handler = static function (Batch $batch) use (&$first): void {
            if ($first) {
                $first = false;
                say('holding');
                waitForGo();
            } else {
                usleep(1_000);
            }
            say('did', onlyRecord($batch)->value);
        };
        (new Worker(setting('SUBSCRIPTION'), $handler))->run();
    },

    'drain_while_polling' => static function (): void {
        $consumer = consumer();
        $held = null;
        try {
            while (true) {
                $batch = $consumer->take(0.01);
                if ($batch !== null) {
                    $held = $batch;
                    say('holding');
                }
            }
        } catch (Drained) {
            say('drained');
        }
        ackAndCheck($held);
        $consumer->close();
    },

    // What travels

    'null_empty_and_binary' => static fn () => echoAll(),
    'duplicate_headers' => static fn () => echoAll(),
    'large_records' => static fn () => echoAll(maxMessageBytes: 16 << 20),

    'record_too_large' => static function (): void {
        $consumer = consumer(maxMessageBytes: 1 << 20);
        $batch = take($consumer);
        equal(onlyRecord($batch)->value, 'small');
        ackAndCheck($batch);
        $consumer->close();
    },

    'publish_and_reply' => static function (): void {
        $publisher = new Publisher(subscription: setting('SUBSCRIPTION'));
        $done = 0;
        $worker = null;
        $handler = static function (Batch $batch) use ($publisher, &$done, &$worker): void {
            foreach ($batch as $record) {
                $places = $publisher->publishMany(setting('REPLY_TOPIC'), [
                    new Message("reply $record->value", $record->key, lane: 1),
                    new Message("done $record->value", lane: 1),
                ]);
                equal([count($places), $places[0]->lane, $places[1]->lane], [2, 1, 1]);
                expect($places[0]->position < $places[1]->position, 'they are not in order');
                $done++;
            }
            if ($done === (int) setting('RECORDS')) {
                $worker->drain();
            }
        };
        $worker = new Worker(setting('SUBSCRIPTION'), $handler);
        $worker->run();
    },

    'order_by_key' => static fn () => pool(8, static function (Batch $batch): void {
        foreach ($batch as $record) {
            say('did', (string) $record->key, (string) $record->value);
        }
    }),

    'two_subscriptions' => static function (): void {
        $left = array_fill_keys([setting('SUBSCRIPTION'), setting('OTHER_SUBSCRIPTION')], (int) setting('RECORDS'));
        $consumers = array_map(static fn (string $name) => new Consumer($name), array_keys($left));
        $consumers = array_combine(array_keys($left), $consumers);
        while (array_sum($left) > 0) {
            $batches = [];
            foreach (array_keys(array_filter($left)) as $name) {
                $batches[$name] = take($consumers[$name]);
            }
            foreach ($batches as $name => $batch) {
                foreach ($batch as $record) {
                    expect(str_starts_with((string) $record->value, "$name "), "$record->value came to $name");
                }
                $left[$name] -= count($batch);
                ackAndCheck($batch);
            }
        }
        foreach ($consumers as $consumer) {
            $consumer->close();
        }
    },

    // What is refused

    'unknown_subscription' => static fn () => expectRefusal('no-such-subscription', NotFound::class),
    'version_mismatch' => static fn () => expectRefusal(setting('SUBSCRIPTION'), Incompatible::class, needsProtocolMinor: 999),

    'one_at_a_time' => static function (): void {
        $consumer = consumer(maxBatchRecords: 1);
        $seen = [];
        while (count($seen) < 10) {
            $batch = take($consumer);
            equal(count($batch), 1);
            $seen[$batch[0]->value] = true;
            ackAndCheck($batch);
        }
        $consumer->close();
    },

    'record_identity' => static function (): void {
        $consumer = consumer();
        for ($number = 0; $number < 6; $number++) {
            $batch = take($consumer);
            say('id', (string) $batch[0]->value, $batch[0]->id());
            expect(($batch[0]->attempt === 1 ? $batch->nack() : $batch->reject('no'))->isSettled(), 'it was not settled');
        }
        $consumer->close();
    },

    'event_headers' => static function (): void {
        $consumer = consumer();
        $batch = take($consumer);
        $happened = $batch[0]->eventTime();
        equal($happened?->format('Y-m-d\TH:i:s.v e'), '2025-06-01T12:00:00.250 UTC');
        equal($batch[0]->contentType(), 'application/json');
        $publisher = new Publisher(subscription: setting('SUBSCRIPTION'));
        $publish = static fn (string $value) => $publisher->publishMany(setting('REPLY_TOPIC'), [
            new Message($value, deduplicationId: 'once', eventTime: $happened, contentType: 'application/json'),
        ])[0];
        $first = $publish('reply');
        $again = $publish('again');
        equal([$again->lane, $again->position], [$first->lane, $first->position]);
        ackAndCheck($batch);
        $consumer->close();
    },

    'refused_settlement' => static function (): void {
        $consumer = consumer();
        $batch = take($consumer);
        $refused = \Closure::bind(fn () => $this->settle(Outcome::of(0)), $batch, Batch::class)();
        equal([$refused->status, $refused->reason], [SettleStatus::Refused, 'UNKNOWN_OUTCOME']);
        $again = take($consumer);
        equal([$again[0]->attempt, $again[0]->possiblyProcessed], [2, false]);
        ackAndCheck($again);
        $consumer->close();
    },
];

$name = $argv[1] ?? '';
try {
    if (!isset($scenarios[$name])) {
        throw new Failed("no scenario \"$name\"; there are " . implode(', ', array_keys($scenarios)));
    }
    $scenarios[$name]();
} catch (\Throwable $error) {
    fwrite(STDERR, "$error\n");
    say('fail:', (string) preg_replace('/\s+/', ' ', $error::class . ": {$error->getMessage()}"));
    exit(1);
}
say('pass');
