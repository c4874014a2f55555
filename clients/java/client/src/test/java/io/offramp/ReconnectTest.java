package io.offramp;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import io.offramp.v1.SettleStatus;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What happens while the sidecar is unavailable. */
class ReconnectTest extends FakeSidecarTest {
    @Test
    void aSidecarThatIsNotThereYetIsWaitedFor() throws Exception {
        sidecar.stop();
        try (Consumer consumer = offramp.consumer("orders").open()) {
            assertNull(consumer.poll(Duration.ofMillis(300)));
            assertFalse(consumer.connected());
            sidecar.start();
            sidecar.offer(List.of(1));
            assertTrue(take(consumer).ack().get().settled());
            assertTrue(consumer.connected());
        }
    }

    @Test
    void workersGoOnAfterTheSidecarRestarts() throws Exception {
        offramp.worker("orders").workers(4).handler(batch -> {}).start();
        for (int life = 0; life < 3; life++) {
            if (life > 0) {
                sidecar.restart();
            }
            sidecar.session(life);
            sidecar.offer(List.of(life));
            int done = life + 1;
            sidecar.eventually(() -> sidecar.acked().size() == done);
        }
        assertEquals(List.of("0", "1", "2"), sidecar.acked());
    }

    @Test
    void aBatchInHandWhenTheSidecarDiesIsLostAndItsSettlementIsUnknown() throws Exception {
        sidecar.offer(List.of(1));
        try (Consumer consumer = offramp.consumer("orders").open()) {
            Batch before = take(consumer);
            sidecar.restart();
            Batch again = take(consumer);
            assertTrue(before.lost());
            assertFalse(again.lost());
            assertEquals(2, again.get(0).attempt());
            assertTrue(again.get(0).possiblyProcessed());
            assertEquals(io.offramp.SettleStatus.UNKNOWN, before.ack().get().status());
            assertTrue(again.ack().get().settled());
        }
    }

    @Test
    void prefetchedBatchesOfALostSessionAreDropped() throws Exception {
        sidecar.offer(List.of(1), List.of(2));
        try (Consumer consumer = offramp.consumer("orders").open()) {
            take(consumer).ack().get();
            sidecar.eventually(() -> sidecar.sessions.get(0).sent.size() == 2);
            sidecar.restart();
            sidecar.session(1);
            Batch again = take(consumer);
            assertEquals("2", again.get(0).valueAsText());
            assertTrue(again.ack().get().settled());
        }
        assertEquals(List.of("1", "2"), sidecar.acked());
    }

    @Test
    void aSettlementThatWasNotAnsweredIsSentAgain() throws Exception {
        sidecar.offer(List.of(1), List.of(2));
        sidecar.ignoreSettlements = true;
        try (Consumer consumer = offramp.consumer("orders").open()) {
            CompletableFuture<SettleResult> first = take(consumer).ack();
            CompletableFuture<SettleResult> second = take(consumer).nack("no");
            sidecar.eventually(() -> sidecar.sessions.get(0).settlements().size() == 2);
            sidecar.ignoreSettlements = false;
            sidecar.answer = settlement -> SettleStatus.SETTLE_STATUS_SETTLED;
            sidecar.restart();
            assertTrue(first.get().settled());
            assertTrue(second.get().settled());
            assertEquals(
                    sidecar.sessions.get(0).settlements(),
                    sidecar.sessions.get(1).settlements().subList(0, 2));
        }
    }

    @Test
    void whatIsSettledWhileTheSidecarIsUnavailableIsSentWhenItIsBack() throws Exception {
        sidecar.offer(List.of(1));
        try (Consumer consumer = offramp.consumer("orders").open()) {
            Batch batch = take(consumer);
            sidecar.stop();
            while (!batch.lost()) {
                Thread.onSpinWait();
            }
            CompletableFuture<SettleResult> answer = batch.ack();
            sidecar.answer = settlement -> SettleStatus.SETTLE_STATUS_SETTLED;
            sidecar.start();
            assertTrue(answer.get().settled());
        }
    }

    @Test
    void settlementsAreUnansweredIfTheClientClosesWhileTheSidecarIsUnavailable() throws Exception {
        sidecar.offer(List.of(1));
        Consumer consumer = offramp.consumer("orders").open();
        Batch batch = take(consumer);
        sidecar.stop();
        CompletableFuture<SettleResult> answer = batch.ack();
        consumer.close();
        assertEquals(io.offramp.SettleStatus.UNANSWERED, answer.get().status());
        assertEquals(Duration.ZERO, batch.extend(Duration.ofSeconds(9)).get());
    }

    @Test
    void aBatchCannotBeSettledAfterItsConsumerIsClosed() throws Exception {
        sidecar.offer(List.of(1));
        Consumer consumer = offramp.consumer("orders").open();
        Batch batch = take(consumer);
        consumer.close();
        assertThrows(OfframpException.AlreadySettled.class, batch::ack);
        assertThrows(OfframpException.Drained.class, consumer::take);
    }

    @ParameterizedTest
    @EnumSource(
            value = Status.Code.class,
            names = {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL"})
    void aTransientRefusalIsRetried(Status.Code code) throws Exception {
        sidecar.refuse = code.toStatus();
        sidecar.offer(List.of(1));
        try (Consumer consumer = offramp.consumer("orders").open()) {
            assertNull(consumer.poll(Duration.ofMillis(100)));
            sidecar.refuse = null;
            take(consumer).ack();
        }
        assertEquals(List.of("1"), sidecar.acked());
    }

    @Test
    void aPublisherWaitsForTheSidecarAndGivesUpInTime() throws Exception {
        Publisher publisher = offramp.publisher().broker("local").open();
        sidecar.stop();
        Publisher hasty = offramp.publisher().broker("local").timeout(Duration.ofMillis(50)).open();
        assertThrows(OfframpException.Unavailable.class, () -> hasty.publish("replies", Message.of("1")));
        CompletableFuture<List<Place>> places = publisher.publishAsync("replies", List.of(Message.of("1")));
        sidecar.start();
        assertEquals(List.of(new Place(1, 0)), places.get());
    }
}
