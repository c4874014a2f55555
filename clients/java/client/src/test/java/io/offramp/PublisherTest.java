package io.offramp;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import io.offramp.v1.PublishRequest;
import java.time.Instant;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.Test;

class PublisherTest extends FakeSidecarTest {
    @Test
    void aMessageIsPublishedWithAllThatItHas() {
        try (Publisher publisher = offramp.publisher().subscription("orders").open()) {
            Message message = Message.of("1")
                    .withKey("k")
                    .withHeader("a", "1")
                    .withHeader("a", (byte[]) null)
                    .withLane(3)
                    .withTimestamp(Instant.ofEpochMilli(5));
            assertEquals(new Place(1, 0), publisher.publish("replies", message));
        }
        PublishRequest request = sidecar.published.get(0);
        assertEquals("orders", request.getSubscription());
        assertEquals("replies", request.getTopic());
        io.offramp.v1.Message message = request.getMessages(0);
        assertEquals("1", message.getValue().toStringUtf8());
        assertEquals("k", message.getKey().toStringUtf8());
        assertEquals(3, message.getLane());
        assertEquals(5, message.getTimestampMs());
        assertEquals("1", message.getHeaders(0).getValue().toStringUtf8());
        assertFalse(message.getHeaders(1).hasValue());
    }

    @Test
    void nullAndEmptyAreDifferentThings() {
        try (Publisher publisher = offramp.publisher().broker("local").open()) {
            List<Place> places = publisher.publish("replies", List.of(Message.tombstone(), Message.of("").withKey("")));
            assertEquals(List.of(new Place(1, 0), new Place(1, 1)), places);
        }
        PublishRequest request = sidecar.published.get(0);
        assertEquals("local", request.getBroker());
        assertFalse(request.getMessages(0).hasValue());
        assertFalse(request.getMessages(0).hasKey());
        assertTrue(request.getMessages(1).hasValue());
        assertTrue(request.getMessages(1).hasKey());
    }

    @Test
    void publishingOnTheThreadThatReceivesTheAnswerIsAnErrorAndNotADeadlock() throws Exception {
        try (Publisher publisher = offramp.publisher().broker("local").open()) {
            // Added before the answer can be there: otherwise it would run on this thread.
            synchronized (sidecar) {
                List<Message> messages = List.of(Message.of("1"));
                CompletableFuture<Place> second = publisher
                        .publishAsync("replies", messages)
                        .thenApply(places -> publisher.publish("replies", Message.of("2")));
                sidecar.notifyAll();
                sidecar.eventually(() -> !sidecar.published.isEmpty());
                ExecutionException error = assertThrows(ExecutionException.class, second::get);
                assertTrue(error.getCause() instanceof IllegalStateException, error.toString());
            }
        }
    }

    @Test
    void errorsHaveTheirOwnClasses() {
        try (Publisher publisher = offramp.publisher().broker("local").open()) {
            sidecar.refuse = Status.NOT_FOUND.withDescription("no such topic");
            assertThrows(OfframpException.NotFound.class, () -> publisher.publish("r", Message.of("1")));
            sidecar.refuse = Status.FAILED_PRECONDITION.withDescription("no right");
            sidecar.reason = "BROKER_REFUSED";
            OfframpException refused =
                    assertThrows(OfframpException.Refused.class, () -> publisher.publish("r", Message.of("1")));
            assertEquals("BROKER_REFUSED", refused.reason());
            assertEquals(OfframpException.Refused.class, refused.getClass());
            sidecar.retryable = true;
            sidecar.refuse = Status.RESOURCE_EXHAUSTED.withDescription("the disk is full");
            sidecar.reason = "BROKER_FULL";
            assertThrows(OfframpException.OutOfRoom.class, () -> publisher.publish("r", Message.of("1")));
            sidecar.refuse = Status.FAILED_PRECONDITION.withDescription("not now");
            sidecar.reason = "OF_A_NEWER_SIDECAR";
            assertThrows(OfframpException.Unavailable.class, () -> publisher.publish("r", Message.of("1")));
            // gRPC itself says no reason.
            sidecar.refuse = Status.RESOURCE_EXHAUSTED.withDescription("too large");
            sidecar.reason = "";
            OfframpException unavailable =
                    assertThrows(OfframpException.Unavailable.class, () -> publisher.publish("r", Message.of("1")));
            assertEquals(OfframpException.Unavailable.class, unavailable.getClass());
        }
    }

    @Test
    void aRequestThatTheSidecarDoesNotTakeIsNotSent() {
        try (Publisher publisher = offramp.publisher().broker("local").open()) {
            publisher.publish("r", Message.of("small"));
            assertEquals(0, sidecar.limitsAsked);
            OfframpException.InvalidRequest large = assertThrows(
                    OfframpException.InvalidRequest.class,
                    () -> publisher.publish("r", Message.of("x".repeat(5 << 20))));
            assertTrue(large.getMessage().contains("listen.max_request_bytes"), large.getMessage());
            List<Message> many = Collections.nCopies(10_001, Message.of("x"));
            OfframpException.InvalidRequest tooMany =
                    assertThrows(OfframpException.InvalidRequest.class, () -> publisher.publish("r", many));
            assertTrue(tooMany.getMessage().contains("10001 messages"), tooMany.getMessage());
            publisher.publish("r", Message.of("x".repeat(1 << 20)));
        }
        assertEquals(2, sidecar.published.size());
        assertEquals(1, sidecar.limitsAsked);
    }

    @Test
    void aPublisherNeedsATargetAndCannotBeUsedOnceClosed() {
        assertThrows(IllegalArgumentException.class, () -> offramp.publisher().open());
        Publisher publisher = offramp.publisher().broker("local").open();
        publisher.close();
        assertThrows(OfframpException.Closed.class, () -> publisher.publish("r", Message.of("1")));
    }
}
