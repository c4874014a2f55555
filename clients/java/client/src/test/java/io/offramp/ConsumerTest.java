package io.offramp;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.grpc.Status;
import io.offramp.v1.ConsumeResponse;
import io.offramp.v1.NoticeKind;
import io.offramp.v1.Outcome;
import io.offramp.v1.Record;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class ConsumerTest extends FakeSidecarTest {
    @Test
    void batchesComeOneAfterTheOtherUntilItDrains() throws Exception {
        sidecar.offer(List.of(1, 2), List.of(3));
        List<String> seen = new ArrayList<>();
        try (Consumer consumer = offramp.consumer("orders").open()) {
            for (Batch batch : consumer) {
                batch.forEach(record -> seen.add(record.valueAsText()));
                batch.ack();
                if (seen.size() == 3) {
                    consumer.drain();
                }
            }
        }
        assertEquals(List.of("1", "2", "3"), seen);
        assertEquals(List.of("1", "2", "3"), sidecar.acked());
        assertTrue(sidecar.sessions.get(0).halfClosed);
    }

    @Test
    void nullEmptyAndBinaryAreDifferentThings() throws Exception {
        byte[] binary = {0, -1, 10, 13};
        sidecar.offerRecords(
                Record.getDefaultInstance(),
                Record.newBuilder().setKey(ByteString.EMPTY).setValue(ByteString.EMPTY).build(),
                Record.newBuilder().setKey(ByteString.copyFrom(binary)).setValue(ByteString.copyFrom(binary)).build());
        try (Consumer consumer = offramp.consumer("orders").open()) {
            Batch batch = take(consumer);
            assertNull(batch.get(0).key());
            assertNull(batch.get(0).value());
            assertNull(batch.get(0).valueAsText());
            assertNull(batch.get(0).timestamp());
            assertArrayEquals(new byte[0], batch.get(1).key());
            assertArrayEquals(new byte[0], batch.get(1).value());
            assertArrayEquals(binary, batch.get(2).key());
            assertArrayEquals(binary, batch.get(2).value());
            batch.ack();
        }
    }

    @Test
    void headersKeepTheirOrderAndMayRepeat() throws Exception {
        sidecar.offerRecords(Record.newBuilder()
                .addHeaders(io.offramp.v1.Header.newBuilder().setName("a").setValue(ByteString.copyFromUtf8("1")))
                .addHeaders(io.offramp.v1.Header.newBuilder().setName("b"))
                .addHeaders(io.offramp.v1.Header.newBuilder().setName("a").setValue(ByteString.EMPTY))
                .build());
        try (Consumer consumer = offramp.consumer("orders").open()) {
            Batch batch = take(consumer);
            BatchRecord record = batch.get(0);
            assertEquals(
                    List.of(Header.of("a", "1"), new Header("b", null), Header.of("a", "")), record.headers());
            assertEquals(Header.of("a", ""), record.header("a"));
            assertNull(record.header("b").value());
            assertNull(record.header("c"));
            batch.ack();
        }
    }

    @Test
    void recordsAreSettledOneByOneInOneSettlement() throws Exception {
        sidecar.offer(List.of(0, 1, 2, 3, 4, 5));
        try (Consumer consumer = offramp.consumer("orders").open()) {
            Batch batch = take(consumer);
            batch.get(0).ack();
            batch.get(1).nack("one", Duration.ofSeconds(9));
            batch.get(2).nack("one", Duration.ofSeconds(9));
            batch.get(4).reject(new IllegalStateException("four"));
            batch.get(5).release();
            assertTrue(batch.ack().get().settled());
        }
        assertEquals(
                List.of(
                        new FakeSidecar.SettledRecord("0", Outcome.OUTCOME_ACK, "", null),
                        new FakeSidecar.SettledRecord("1", Outcome.OUTCOME_NACK, "one", 9_000L),
                        new FakeSidecar.SettledRecord("2", Outcome.OUTCOME_NACK, "one", 9_000L),
                        new FakeSidecar.SettledRecord("3", Outcome.OUTCOME_ACK, "", null),
                        new FakeSidecar.SettledRecord("4", Outcome.OUTCOME_REJECT, "IllegalStateException: four", null),
                        new FakeSidecar.SettledRecord("5", Outcome.OUTCOME_RELEASE, "", null)),
                sidecar.settled.subList(0, 6));
        assertEquals(3, sidecar.sessions.get(0).settlements().get(0).getPartsCount());
    }

    @Test
    void aFlushSettlesWhatIsMarkedAndKeepsTheRest() throws Exception {
        sidecar.offer(List.of(0, 1, 2));
        try (Consumer consumer = offramp.consumer("orders").open()) {
            Batch batch = take(consumer);
            assertTrue(batch.flush().get().settled());
            batch.get(1).ack();
            assertTrue(batch.flush().get().settled());
            assertEquals(List.of("1"), sidecar.acked());
            assertFalse(batch.settled());
            assertThrows(OfframpException.AlreadySettled.class, () -> batch.get(1).nack("no"));
            batch.get(2).reject("two");
            assertTrue(batch.ack().get().settled());
            assertTrue(batch.settled());
            assertThrows(OfframpException.AlreadySettled.class, batch::ack);
        }
        assertEquals(List.of("1", "0"), sidecar.acked());
        assertEquals(List.of("2"), sidecar.settledWith(Outcome.OUTCOME_REJECT));
    }

    @Test
    void aBatchThatWasFlushedToTheLastRecordIsSettled() throws Exception {
        sidecar.offer(List.of(0, 1));
        try (Consumer consumer = offramp.consumer("orders").open()) {
            Batch batch = take(consumer);
            batch.forEach(BatchRecord::ack);
            batch.flush();
            assertTrue(batch.settled());
            assertTrue(batch.ack().get().settled());
        }
        assertEquals(1, sidecar.sessions.get(0).settlements().size());
    }

    @Test
    void aSettlementThatIsTooLargeForARequestIsSentInPieces(@TempDir Path folder) throws Exception {
        FakeSidecar small = new FakeSidecar(folder);
        small.maxRequestBytes = 4_096;
        small.start();
        try (Offramp other = Offramp.connect(small.address);
                Consumer consumer = other.consumer("orders").open()) {
            small.offer(IntStream.range(0, 300).boxed().toList());
            Batch batch = take(consumer);
            for (BatchRecord record : batch) {
                if (record.index() % 2 == 0) {
                    record.reject("because of " + record.index());
                }
            }
            assertTrue(batch.ack().get().settled());
            assertEquals(150, small.acked().size());
            assertEquals(150, small.settledWith(Outcome.OUTCOME_REJECT).size());
            assertTrue(small.sessions.get(0).settlements().size() > 2);
        } finally {
            small.close();
        }
    }

    @Test
    void aLeaseIsExtendedAndALostOneIsNot() throws Exception {
        sidecar.offer(List.of(1));
        try (Consumer consumer = offramp.consumer("orders").lease(Duration.ofSeconds(9)).open()) {
            Batch batch = take(consumer);
            assertEquals(Duration.ofSeconds(9), batch.leaseFor());
            assertEquals(Duration.ofSeconds(60), batch.extend(Duration.ofSeconds(60)).get());
            assertThrows(IllegalArgumentException.class, () -> batch.extend(Duration.ZERO));
            batch.ack().get();
            assertEquals(Duration.ZERO, batch.extend(Duration.ofSeconds(60)).get());
        }
    }

    @Test
    void onResultIsCalledWithEveryResult() throws Exception {
        sidecar.offer(List.of(1));
        CompletableFuture<SettleResult> seen = new CompletableFuture<>();
        sidecar.answer = settlement -> io.offramp.v1.SettleStatus.SETTLE_STATUS_STALE;
        try (Consumer consumer =
                offramp.consumer("orders").onResult((batch, result) -> seen.complete(result)).open()) {
            take(consumer).ack();
            assertEquals(SettleStatus.STALE, seen.get().status());
            assertEquals("as the test says", seen.get().detail());
        }
    }

    @Test
    void batchesOfLanesThatMovedAwayAreLost() throws Exception {
        sidecar.offer(List.of(1), List.of(2));
        try (Consumer consumer = offramp.consumer("orders").open()) {
            Batch batch = take(consumer);
            sidecar.eventually(() -> sidecar.sessions.get(0).sent.size() == 2);
            assertFalse(batch.lost());
            sidecar.notice(NoticeKind.NOTICE_KIND_REVOKED, sidecar.sessions.get(0).sent.get(0));
            sidecar.notice(NoticeKind.NOTICE_KIND_PAUSED);
            Batch other = take(consumer);
            assertFalse(other.lost());
            other.ack();
            while (!batch.lost()) {
                Thread.onSpinWait();
            }
            batch.ack();
        }
    }

    @Test
    void aBatchInHandWhenTheConsumerClosesIsReleased() throws Exception {
        sidecar.offer(List.of(1));
        try (Consumer consumer = offramp.consumer("orders").open()) {
            take(consumer);
        }
        assertEquals(List.of("1"), sidecar.settledWith(Outcome.OUTCOME_RELEASE));
        assertTrue(sidecar.sessions.get(0).halfClosed);
        assertFalse(sidecar.ready.getFirst().possiblyProcessed());
    }

    @Test
    void whatWasMarkedBeforeTheConsumerClosesIsSettledAsMarked() throws Exception {
        sidecar.offer(List.of(1, 2));
        try (Consumer consumer = offramp.consumer("orders").open()) {
            take(consumer).get(0).ack();
        }
        assertEquals(List.of("1"), sidecar.acked());
        assertEquals(List.of("2"), sidecar.settledWith(Outcome.OUTCOME_RELEASE));
    }

    @Test
    void aPollLearnsThatTheConsumerDrains() throws Exception {
        sidecar.offer(List.of(1));
        try (Consumer consumer = offramp.consumer("orders").open()) {
            Batch batch = take(consumer);
            consumer.drain();
            for (int count = 0; count < 2; count++) {
                assertThrows(OfframpException.Drained.class, () -> consumer.poll(Duration.ZERO));
                assertThrows(OfframpException.Drained.class, () -> consumer.poll(TIMEOUT));
                assertThrows(OfframpException.Drained.class, consumer::take);
            }
            assertFalse(consumer.iterator().hasNext());
            assertTrue(batch.ack().get().settled());
        }
    }

    @Test
    void aBatchInHandWhenTheJvmShutsDownMayBeSettled() throws Exception {
        sidecar.offer(List.of(1), List.of(2));
        Batch batch = take(offramp.consumer("orders").open());
        CompletableFuture<Void> finished = CompletableFuture.runAsync(offramp::drainAndClose);
        sidecar.eventually(() -> sidecar.sessions.get(0).draining);
        assertFalse(finished.isDone());
        batch.ack();
        finished.get();
        assertEquals(List.of("1"), sidecar.acked());
        assertTrue(sidecar.sessions.get(0).halfClosed);
    }

    @Test
    void aBatchThatIsNeverSettledIsNotWaitedForForEver() throws Exception {
        sidecar.offer(List.of(1));
        take(offramp.consumer("orders").drainTimeout(Duration.ofMillis(50)).open());
        offramp.drainAndClose();
        sidecar.eventually(() -> sidecar.sessions.get(0).ended);
        assertTrue(sidecar.ready.getFirst().possiblyProcessed());
    }

    @Test
    void anIdleConsumerIsNotWaitedFor() throws Exception {
        offramp.consumer("orders").drainTimeout(Duration.ofDays(1)).open();
        sidecar.session(0);
        offramp.drainAndClose();
        sidecar.eventually(() -> sidecar.sessions.get(0).ended);
    }

    @Test
    void aSidecarThatDoesNotAnswerIsNotWaitedForForEver() throws Exception {
        sidecar.offer(List.of(1));
        sidecar.ignoreSettlements = true;
        sidecar.keepStreamOpen = true;
        Consumer consumer = offramp.consumer("orders").open();
        CompletableFuture<SettleResult> answer = take(consumer).ack();
        consumer.close();
        assertEquals(SettleStatus.UNANSWERED, answer.get().status());
    }

    @Test
    void aPollWithoutABatchInTimeReturnsNull() throws Exception {
        try (Consumer consumer = offramp.consumer("orders").open()) {
            assertNull(consumer.poll(Duration.ofMillis(20)));
        }
    }

    @Test
    void pollingWithoutWaitingReturnsABatchThatWasReleasedBefore() throws Exception {
        sidecar.offer(List.of(1));
        try (Consumer consumer = offramp.consumer("orders").patience(Duration.ofMillis(50)).open()) {
            sidecar.eventually(() -> !sidecar.sessions.isEmpty() && sidecar.sessions.get(0).credit == 0);
            long ends = System.nanoTime() + TIMEOUT.toNanos();
            Batch batch = null;
            while (batch == null && System.nanoTime() < ends) {
                batch = consumer.poll(Duration.ZERO);
            }
            assertTrue(batch != null, "no batch came");
            batch.ack();
        }
    }

    @ParameterizedTest
    @EnumSource(
            value = Status.Code.class,
            names = {"NOT_FOUND", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED", "PERMISSION_DENIED"})
    void aPermanentRefusalIsThrownEveryTime(Status.Code code) {
        sidecar.refuse = code.toStatus().withDescription("no; there are: orders");
        try (Consumer consumer = offramp.consumer("ordrs").open()) {
            for (int count = 0; count < 2; count++) {
                OfframpException error = assertThrows(OfframpException.Refused.class, consumer::take);
                assertTrue(error.getMessage().contains("there are: orders"), error.getMessage());
            }
        }
    }

    @Test
    void aResultOutOfOrderEndsTheClientWithAClearError() throws Exception {
        try (Consumer consumer = offramp.consumer("orders").open()) {
            sidecar.session(0);
            sidecar.respond(ConsumeResponse.newBuilder()
                    .addResults(io.offramp.v1.SettleResult.newBuilder().setLease(ByteString.copyFromUtf8("other")))
                    .build());
            OfframpException error = assertThrows(OfframpException.ProtocolBroken.class, consumer::take);
            assertTrue(error.getMessage().contains("not next"));
        }
    }
}
