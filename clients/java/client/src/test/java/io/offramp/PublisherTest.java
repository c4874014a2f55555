package io.offramp;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import io.offramp.v1.ErrorReason;
import io.offramp.v1.PublishRequest;
import io.offramp.v1.PublishStatus;
import io.offramp.v1.Published;
import java.time.Duration;
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
    void eachMessageHasAResultOfItsOwn() {
        sidecar.notPublished.put(1, failed(PublishStatus.PUBLISH_STATUS_REFUSED, ErrorReason.ERROR_REASON_BROKER_FULL, true));
        sidecar.notPublished.put(
                2, failed(PublishStatus.PUBLISH_STATUS_REFUSED, ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE, false));
        sidecar.notPublished.put(
                3, failed(PublishStatus.PUBLISH_STATUS_UNKNOWN, ErrorReason.ERROR_REASON_UNSPECIFIED, false));
        sidecar.notPublished.put(4, Published.getDefaultInstance());
        try (Publisher publisher = offramp.publisher().broker("local").open()) {
            OfframpException.PartlyPublished partly = assertThrows(
                    OfframpException.PartlyPublished.class,
                    () -> publisher.publish("r", Collections.nCopies(5, Message.of("x"))));
            assertTrue(partly.getMessage().startsWith("4 of 5 messages"), partly.getMessage());
            assertEquals(new Place(1, 0), partly.results().get(0).place());
            assertEquals(
                    List.of(
                            OfframpException.OutOfRoom.class,
                            OfframpException.InvalidRequest.class,
                            OfframpException.Unavailable.class,
                            OfframpException.Unavailable.class),
                    partly.results().stream()
                            .skip(1)
                            .map(result -> result.error().getClass())
                            .toList());
            assertFalse(partly.retryable());
            sidecar.notPublished.keySet().retainAll(List.of(1));
            assertTrue(assertThrows(
                            OfframpException.PartlyPublished.class,
                            () -> publisher.publish("r", Collections.nCopies(2, Message.of("x"))))
                    .retryable());
            sidecar.notPublished.put(0, sidecar.notPublished.remove(1));
            assertThrows(OfframpException.OutOfRoom.class, () -> publisher.publish("r", Message.of("x")));
        }
    }

    private static Published failed(PublishStatus status, ErrorReason reason, boolean retryable) {
        return Published.newBuilder()
                .setStatus(status)
                .setReason(reason)
                .setRetryable(retryable)
                .setDetail("because")
                .build();
    }

    @Test
    void aMessageSaysWhenItHappenedHowItIsEncodedAndWhenToDeliverIt() {
        try (Publisher publisher = offramp.publisher().broker("local").open()) {
            publisher.publish(
                    "r",
                    Message.of("{}")
                            .withEventTime(Instant.parse("2025-06-01T12:00:00Z"))
                            .withContentType("application/json")
                            .withDeliverAfter(Duration.ofMillis(1_500))
                            .withDeduplicationId("one"));
        }
        io.offramp.v1.Message message = sidecar.published.get(0).getMessages(0);
        assertEquals("ce_time", message.getHeaders(0).getName());
        assertEquals("2025-06-01T12:00:00Z", message.getHeaders(0).getValue().toStringUtf8());
        assertEquals("content-type", message.getHeaders(1).getName());
        assertEquals(1_500, message.getDeliverAfterMs());
        assertEquals("one", message.getDeduplicationId());
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
