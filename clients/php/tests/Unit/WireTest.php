<?php

declare(strict_types=1);

namespace Offramp\Tests\Unit;

use Offramp\Batch;
use Offramp\Internal\Wire;
use Offramp\Tests\Support\RecordingSettler;
use Offramp\V1\Batch as WireBatch;
use Offramp\V1\Credit;
use Offramp\V1\FetchRequest;
use Offramp\V1\FetchResponse;
use Offramp\V1\Header;
use Offramp\V1\Notice;
use Offramp\V1\Record;
use Offramp\V1\Redelivery;
use Offramp\V1\Settlement;
use Offramp\V1\SettleResult;
use PHPUnit\Framework\TestCase;

/** `Wire` and generated code agree. */
final class WireTest extends TestCase
{
    public function testRandomBatchesAreDecodedAsTheyWereEncoded(): void
    {
        mt_srand(7);
        for ($round = 0; $round < 60; $round++) {
            $message = $this->randomBatch();
            $batch = new Batch($message->serializeToString(), new RecordingSettler());
            self::assertSame($message->getLease(), $batch->lease);
            self::assertSame($message->getTopic(), $batch->topic);
            self::assertSame(iterator_to_array($message->getLanes()), $batch->lanes);
            self::assertEquals($message->getLeaseForMs() / 1_000, $batch->leaseFor);
            self::assertCount(count($message->getRecords()), $batch);
            foreach ($batch as $index => $record) {
                /** @var Record $wanted */
                $wanted = $message->getRecords()[$index];
                self::assertSame($wanted->hasKey() ? $wanted->getKey() : null, $record->key);
                self::assertSame($wanted->hasValue() ? $wanted->getValue() : null, $record->value);
                self::assertSame($wanted->getLane(), $record->lane);
                self::assertSame($wanted->getPosition(), $record->position);
                self::assertSame($wanted->getRef(), $record->ref);
                self::assertSame($wanted->getTimestampMs(), $record->timestampMs);
                $headers = [];
                foreach ($wanted->getHeaders() as $header) {
                    $headers[] = [$header->getName(), $header->hasValue() ? $header->getValue() : null];
                }
                self::assertSame($headers, array_map(static fn ($one) => [$one->name, $one->value], $record->headers));
            }
        }
    }

    public function testRedeliveriesBelongToTheirRange(): void
    {
        $message = new WireBatch(['lease' => 'l', 'records' => array_fill(0, 6, new Record(['value' => 'v']))]);
        $message->setRedeliveries([
            new Redelivery(['first' => 1, 'count' => 2, 'attempt' => 3]),
            new Redelivery(['first' => 4, 'count' => 1, 'possibly_processed' => true]),
        ]);
        $batch = new Batch($message->serializeToString(), new RecordingSettler());
        $seen = [];
        foreach ($batch as $record) {
            $seen[] = [$record->attempt, $record->possiblyProcessed];
        }
        self::assertSame([[1, false], [3, false], [3, false], [1, false], [1, true], [1, false]], $seen);
    }

    public function testFieldsOfALaterVersionAreSkipped(): void
    {
        // Fields 100 to 103: a varint, eight bytes, text and four bytes.
        $unknown = "\xa0\x06\x96\x01\xa9\x06" . str_repeat('x', 8) . "\xb2\x06\x02hi\xbd\x06" . str_repeat('y', 4);
        $record = (new Record(['value' => 'v', 'position' => 7]))->serializeToString() . $unknown;
        $lease = (new WireBatch(['lease' => 'l']))->serializeToString();
        $batch = $lease . "\x22" . chr(strlen($record)) . $record . $unknown;
        $read = new Batch($batch, new RecordingSettler());
        self::assertSame(['v', 7], [$read[0]->value, $read[0]->position]);
        self::assertSame([[], [], []], Wire::fetchResponse($unknown));
    }

    public function testAFetchResponseIsSplitIntoItsFields(): void
    {
        $batch = new WireBatch(['lease' => 'a']);
        $result = new SettleResult(['lease' => 'b', 'status' => 2]);
        $notice = new Notice(['detail' => str_repeat('long ', 100)]);
        $answer = new FetchResponse(['batches' => [$batch, $batch], 'results' => [$result], 'notices' => [$notice]]);
        $parts = array_map(static fn ($one) => $one->serializeToString(), [$batch, $result, $notice]);
        $read = Wire::fetchResponse($answer->serializeToString());
        self::assertSame([[$parts[0], $parts[0]], [$parts[1]], [$parts[2]]], $read);
    }

    public function testARequestIsEncodedAsByGeneratedCode(): void
    {
        $requests = [
            [0, 0, 0, []],
            [1, 1, 20_000, ['a']],
            [300, 0, 127, ['a', str_repeat('b', 400)]],
            [PHP_INT_MAX, 9, 128, ['']],
        ];
        foreach ($requests as [$seq, $batches, $waitMs, $leases]) {
            $ack = static fn (string $lease) => new Settlement(['lease' => $lease, 'outcome' => 1]);
            $settlements = array_map($ack, $leases);
            $wanted = new FetchRequest(['session' => 'name', 'seq' => $seq, 'wait_ms' => $waitMs]);
            $wanted->setSettlements($settlements);
            $wanted->setWant(new Credit(['batches' => $batches]));
            $bytes = array_map(static fn (Settlement $settlement) => $settlement->serializeToString(), $settlements);
            $written = Wire::fetchRequest('name', $seq, $bytes, $batches, $waitMs);
            self::assertSame($wanted->serializeToString(), $written);
        }
    }

    public function testAResultWithNothingButItsStatusIsDecodedByHand(): void
    {
        $plain = new SettleResult(['lease' => random_bytes(16), 'status' => 3]);
        self::assertSame(3, Wire::plainStatus($plain->serializeToString()));
        $plain->setDetail('but');
        self::assertNull(Wire::plainStatus($plain->serializeToString()));
    }

    private function randomBatch(): WireBatch
    {
        $records = [];
        for ($count = mt_rand(0, 20); $count > 0; $count--) {
            $record = new Record();
            if (mt_rand(0, 2) > 0) {
                $record->setKey($this->randomBytes());
            }
            if (mt_rand(0, 4) > 0) {
                $record->setValue($this->randomBytes());
            }
            $headers = [];
            for ($more = mt_rand(0, 3); $more > 0; $more--) {
                $header = new Header(['name' => bin2hex($this->randomBytes())]);
                if (mt_rand(0, 2) > 0) {
                    $header->setValue($this->randomBytes());
                }
                $headers[] = $header;
            }
            $record->setHeaders($headers);
            $record->setLane(mt_rand(0, 1) * mt_rand(0, 0x7fffffff));
            $record->setPosition([0, 1, -1, PHP_INT_MAX, PHP_INT_MIN, mt_rand()][mt_rand(0, 5)]);
            $record->setRef($this->randomBytes());
            $record->setTimestampMs(mt_rand(0, 1) * 1_700_000_000_000);
            $records[] = $record;
        }
        return new WireBatch([
            'lease' => random_bytes(16),
            'topic' => str_repeat('t', mt_rand(0, 200)),
            'topic_id' => str_repeat('d', mt_rand(0, 1) * 22),
            'lanes' => array_map(static fn () => mt_rand(0, 1 << 20), array_fill(0, mt_rand(0, 5), 0)),
            'records' => $records,
            'lease_for_ms' => mt_rand(0, 1) * mt_rand(0, 1 << 40),
            'closed_by' => mt_rand(0, 5),
        ]);
    }

    private function randomBytes(): string
    {
        $size = [0, 1, 10, 127, 128, 300, 20_000][mt_rand(0, 6)];
        return $size === 0 ? '' : random_bytes($size);
    }
}
