<?php

declare(strict_types=1);

namespace Offramp\Tests\Unit;

use Offramp\Batch;
use Offramp\Exception\AlreadySettled;
use Offramp\Internal\Settlement;
use Offramp\Internal\Outcome;
use Offramp\Tests\Support\RecordingSettler;
use Offramp\V1\Batch as WireBatch;
use Offramp\V1\Outcome as WireOutcome;
use Offramp\V1\Record;
use Offramp\V1\Settlement as Message;
use PHPUnit\Framework\TestCase;

final class BatchTest extends TestCase
{
    private RecordingSettler $settler;

    protected function setUp(): void
    {
        $this->settler = new RecordingSettler();
    }

    public function testAnAckHasNoParts(): void
    {
        $this->batch(3)->ack();
        self::assertSame(['ack', []], $this->lastSettlement());
    }

    public function testConsecutiveRecordsWithTheSameOutcomeShareOnePart(): void
    {
        $batch = $this->batch(10);
        foreach ([7, 1, 2, 8] as $index) {
            $batch[$index]->nack('busy', after: 1.5);
        }
        $batch[3]->nack('other');
        $batch[4]->ack();
        $batch->ack();
        self::assertSame(
            ['ack', [[1, 2, 'nack', 'busy', 1_500], [3, 1, 'nack', 'other', null], [7, 2, 'nack', 'busy', 1_500]]],
            $this->lastSettlement(),
        );
    }

    public function testALaterMarkReplacesAnEarlierOne(): void
    {
        $batch = $this->batch(2);
        $batch[0]->reject('bad');
        $batch[0]->ack();
        $batch->ack();
        self::assertSame(['ack', []], $this->lastSettlement());
    }

    public function testFlushedRecordsAreNotSettledAgain(): void
    {
        $batch = $this->batch(5);
        $batch[0]->ack();
        $batch[3]->reject('bad');
        $batch->flush();
        self::assertSame(['partial', [[0, 1, 'ack', '', null], [3, 1, 'reject', 'bad', null]]], $this->lastSettlement());
        self::assertNull($batch->flush());
        $batch[4]->release();
        $batch->nack('late');
        self::assertSame(['partial', [[1, 2, 'nack', 'late', null], [4, 1, 'release', '', null]]], $this->lastSettlement());
        self::assertTrue($batch->isSettled());
    }

    public function testABatchWhoseRecordsAreAllFlushedNeedsNoFurtherSettlement(): void
    {
        $batch = $this->batch(1);
        $batch[0]->ack();
        $batch->flush();
        self::assertTrue($batch->isSettled());
        self::assertTrue($batch->ack()->isSettled());
        self::assertCount(1, $this->settler->settlements);
    }

    public function testABatchIsSettledOnce(): void
    {
        $batch = $this->batch(1);
        $batch->release();
        $this->expectException(AlreadySettled::class);
        $batch->ack();
    }

    public function testARecordIsSettledOnce(): void
    {
        $batch = $this->batch(2);
        $batch[0]->ack();
        $batch->flush();
        $this->expectException(AlreadySettled::class);
        $batch[0]->reject('bad');
    }

    public function testARecordThatIsNotThereIsNamed(): void
    {
        self::assertTrue(isset($this->batch(2)[1]));
        self::assertFalse(isset($this->batch(2)[2]));
        $this->expectExceptionMessage('there is no record 2 in a batch of 2');
        $this->batch(2)[2];
    }

    public function testItIsLostWithItsSessionOrItsLane(): void
    {
        $batch = $this->batch(1);
        self::assertFalse($batch->isLost());
        $this->settler->alive = false;
        self::assertTrue($batch->isLost());
        $this->settler->alive = true;
        $batch->revoke();
        self::assertTrue($batch->isLost());
    }

    public function testASettlementHasItsReasonAndItsDelay(): void
    {
        $this->batch(2)->nack(str_repeat('long ', 100), after: 0.0);
        $said = end($this->settler->settlements);
        self::assertSame('lease', $said->getLease());
        self::assertSame(str_repeat('long ', 100), $said->getReason());
        self::assertTrue($said->hasRetryAfterMs());
        self::assertEquals(0, $said->getRetryAfterMs());
        $this->batch(2)->overloaded(after: 100_000.0);
        self::assertEquals(100_000_000, end($this->settler->settlements)->getRetryAfterMs());
        $this->batch(2)->release();
        self::assertFalse(end($this->settler->settlements)->hasRetryAfterMs());
    }

    public function testANegativeDelayIsRefused(): void
    {
        $this->expectExceptionMessage('after: -1 seconds');
        $this->batch(1)->nack('x', after: -1);
    }

    public function testAnExtensionMustBeMoreThanZero(): void
    {
        $this->expectException(\InvalidArgumentException::class);
        $this->batch(1)->extend(0);
    }

    public function testRecordsHaveTheirIdAndTimestamp(): void
    {
        $record = $this->batch(3)[2];
        self::assertSame(['orders/4/102', 2, 'v2'], [$record->id(), $record->index, $record->value]);
        self::assertSame('2023-11-14T22:13:20.123+00:00', $record->timestamp()?->format('Y-m-d\TH:i:s.vP'));
    }

    public function testASettlementThatIsTooLargeIsSentInPieces(): void
    {
        $marks = [];
        foreach (range(0, 99, 2) as $index) {
            $marks[$index] = Outcome::of(WireOutcome::OUTCOME_NACK, "$index " . str_repeat('x', 200), 1.0);
        }
        $whole = Settlement::whole('lease', Outcome::of(WireOutcome::OUTCOME_REJECT, 'rest'), $marks);
        self::assertSame([$whole], $whole->pieces(100, 100_000, 10_000));
        $pieces = $whole->pieces(100, 2_000, 10_000);
        self::assertGreaterThan(5, count($pieces));
        $covered = [];
        foreach ($pieces as $piece) {
            self::assertLessThanOrEqual(2_000, strlen($piece->encode()));
            $message = new Message();
            $message->mergeFromString($piece->encode());
            self::assertTrue($message->getPartial());
            foreach ($message->getParts() as $part) {
                for ($index = $part->getFirst(); $index < $part->getFirst() + $part->getCount(); $index++) {
                    $covered[$index] = [$part->getOutcome(), (int) $part->getReason()];
                }
            }
        }
        self::assertSame(range(0, 99), array_keys($covered));
        self::assertSame([WireOutcome::OUTCOME_NACK, 42], $covered[42]);
        self::assertSame(WireOutcome::OUTCOME_REJECT, $covered[43][0]);
    }

    private function batch(int $count): Batch
    {
        $records = [];
        for ($index = 0; $index < $count; $index++) {
            $records[] = new Record([
                'value' => "v$index", 'lane' => 4, 'position' => 100 + $index, 'timestamp_ms' => 1_700_000_000_123,
            ]);
        }
        $message = new WireBatch(['lease' => 'lease', 'topic' => 'orders', 'records' => $records]);
        return new Batch($message->serializeToString(), $this->settler);
    }

    /** @return array{string, list<array{int, int, string, string, int|null}>} the last settlement */
    private function lastSettlement(): array
    {
        $name = static fn (int $outcome) => strtolower(substr(WireOutcome::name($outcome), strlen('OUTCOME_')));
        /** @var Message $last */
        $last = end($this->settler->settlements);
        $parts = [];
        foreach ($last->getParts() as $part) {
            $after = $part->hasRetryAfterMs() ? (int) $part->getRetryAfterMs() : null;
            $parts[] = [$part->getFirst(), $part->getCount(), $name($part->getOutcome()), $part->getReason(), $after];
        }
        return [$last->getPartial() ? 'partial' : $name($last->getOutcome()), $parts];
    }
}
