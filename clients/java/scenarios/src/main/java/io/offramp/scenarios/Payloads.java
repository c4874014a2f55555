package io.offramp.scenarios;

import static io.offramp.scenarios.Harness.OTHER_SUBSCRIPTION;
import static io.offramp.scenarios.Harness.RECORDS;
import static io.offramp.scenarios.Harness.REPLY_TOPIC;
import static io.offramp.scenarios.Harness.SUBSCRIPTION;
import static io.offramp.scenarios.Harness.equal;
import static io.offramp.scenarios.Harness.expect;
import static io.offramp.scenarios.Harness.say;
import static io.offramp.scenarios.ScenarioContext.expectSettled;
import static io.offramp.scenarios.ScenarioContext.onlyRecord;
import static io.offramp.scenarios.ScenarioContext.take;

import io.offramp.Batch;
import io.offramp.BatchRecord;
import io.offramp.Consumer;
import io.offramp.Message;
import io.offramp.Place;
import io.offramp.Publisher;
import io.offramp.Worker;
import java.time.Instant;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;

/** "What travels" of clients/SCENARIOS.md. */
final class Payloads {
    private Payloads() {}

    static void echo(ScenarioContext context) throws InterruptedException {
        echo(context, 4 << 20);
    }

    static void largeRecords(ScenarioContext context) throws InterruptedException {
        echo(context, 16 << 20);
    }

    private static void echo(ScenarioContext context, int maxMessageBytes) throws InterruptedException {
        int done = 0;
        try (Publisher publisher = publisher(context);
                Consumer consumer = context.offramp
                        .consumer(SUBSCRIPTION)
                        .maxMessageBytes(maxMessageBytes)
                        .open()) {
            while (done < RECORDS) {
                Batch batch = take(consumer);
                for (BatchRecord record : batch) {
                    Message message = Message.of(record.value()).withHeaders(record.headers());
                    publisher.publish(REPLY_TOPIC, record.key() == null ? message : message.withKey(record.key()));
                }
                expectSettled(batch.ack());
                done += batch.size();
            }
        }
        equal(done, RECORDS);
    }

    static void recordTooLarge(ScenarioContext context) throws InterruptedException {
        try (Consumer consumer =
                context.offramp.consumer(SUBSCRIPTION).maxMessageBytes(1 << 20).open()) {
            Batch batch = take(consumer);
            equal(onlyRecord(batch).valueAsText(), "small");
            expectSettled(batch.ack());
        }
    }

    static void publishAndReply(ScenarioContext context) throws InterruptedException {
        AtomicInteger done = new AtomicInteger();
        CompletableFuture<Worker> self = new CompletableFuture<>();
        try (Publisher publisher = publisher(context)) {
            Worker worker = context.worker(batch -> {
                        for (BatchRecord record : batch) {
                            reply(publisher, record);
                            if (done.incrementAndGet() == RECORDS) {
                                self.join().drain();
                            }
                        }
                    })
                    .start();
            self.complete(worker);
            worker.join();
        }
    }

    private static void reply(Publisher publisher, BatchRecord record) {
        String value = record.valueAsText();
        List<Place> places = publisher.publish(
                REPLY_TOPIC,
                List.of(
                        Message.of("reply " + value).withKey(record.key()).withLane(1),
                        Message.of("done " + value).withLane(1)));
        equal(places.stream().map(Place::lane).toList(), List.of(1, 1));
        expect(places.get(0).position() < places.get(1).position(), "they are not in order: " + places);
    }

    static void orderByKey(ScenarioContext context) throws InterruptedException {
        context.runUntilSigterm(context.worker(
                        batch -> batch.forEach(record -> say("did", record.keyAsText(), record.valueAsText())))
                .workers(8));
    }

    static void twoSubscriptions(ScenarioContext context) throws InterruptedException {
        int left = RECORDS;
        int otherLeft = RECORDS;
        try (Consumer consumer = context.openConsumer();
                Consumer other = context.offramp.consumer(OTHER_SUBSCRIPTION).open()) {
            while (left > 0 || otherLeft > 0) {
                Batch batch = left > 0 ? take(consumer) : null;
                Batch otherBatch = otherLeft > 0 ? take(other) : null;
                left -= done(batch, SUBSCRIPTION);
                otherLeft -= done(otherBatch, OTHER_SUBSCRIPTION);
            }
        }
    }

    private static int done(Batch batch, String subscription) throws InterruptedException {
        if (batch == null) {
            return 0;
        }
        for (BatchRecord record : batch) {
            String value = record.valueAsText();
            expect(value.startsWith(subscription + " "), value + " came to " + subscription);
        }
        expectSettled(batch.ack());
        return batch.size();
    }

    static void oneAtATime(ScenarioContext context) throws InterruptedException {
        try (Consumer consumer =
                context.offramp.consumer(SUBSCRIPTION).maxBatchRecords(1).open()) {
            Set<String> seen = new HashSet<>();
            while (seen.size() < 10) {
                Batch batch = take(consumer);
                seen.add(onlyRecord(batch).valueAsText());
                expectSettled(batch.ack());
            }
        }
    }

    static void recordIdentity(ScenarioContext context) throws InterruptedException {
        try (Consumer consumer = context.openConsumer()) {
            for (int count = 0; count < 6; count++) {
                Batch batch = take(consumer);
                BatchRecord record = onlyRecord(batch);
                say("id", record.valueAsText(), record.id());
                expectSettled(record.attempt() == 1 ? batch.nack("again") : batch.reject("no"));
            }
        }
    }

    static void eventHeaders(ScenarioContext context) throws InterruptedException {
        try (Consumer consumer = context.openConsumer();
                Publisher publisher = publisher(context)) {
            Batch batch = take(consumer);
            BatchRecord record = onlyRecord(batch);
            Instant happened = Instant.parse("2025-06-01T12:00:00.250Z");
            equal(record.eventTime(), happened);
            equal(record.contentType(), "application/json");
            List<Place> places = Stream.of("reply", "again")
                    .map(value -> publisher.publish(
                            REPLY_TOPIC,
                            Message.of(value)
                                    .withEventTime(happened)
                                    .withContentType("application/json")
                                    .withDeduplicationId("once")))
                    .toList();
            equal(places.get(1), places.get(0));
            expectSettled(batch.ack());
        }
    }

    private static Publisher publisher(ScenarioContext context) {
        return context.offramp.publisher().subscription(SUBSCRIPTION).open();
    }
}
