package io.offramp.scenarios;

import static io.offramp.scenarios.Harness.RECORDS;
import static io.offramp.scenarios.Harness.equal;
import static io.offramp.scenarios.Harness.expect;
import static io.offramp.scenarios.Harness.say;
import static io.offramp.scenarios.Harness.waitForGo;
import static io.offramp.scenarios.ScenarioContext.expectSettled;
import static io.offramp.scenarios.ScenarioContext.isFirst;
import static io.offramp.scenarios.ScenarioContext.isRedelivered;
import static io.offramp.scenarios.ScenarioContext.take;

import io.offramp.Batch;
import io.offramp.BatchRecord;
import io.offramp.Consumer;
import io.offramp.SettleAs;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** "Outcomes" of clients/SCENARIOS.md. */
final class Outcomes {
    private Outcomes() {}

    static void plainAck(ScenarioContext context) {
        Set<String> seen = new HashSet<>();
        try (Consumer consumer = context.openConsumer()) {
            for (Batch batch : consumer) {
                for (BatchRecord record : batch) {
                    isFirst(record);
                    expect(seen.add(record.valueAsText()), record.valueAsText() + " came twice");
                }
                batch.ack();
                if (seen.size() >= RECORDS) {
                    break;
                }
            }
        }
        equal(seen, IntStream.range(0, RECORDS).mapToObj(String::valueOf).collect(Collectors.toSet()));
    }

    static void nackThenSuccess(ScenarioContext context) throws InterruptedException {
        context.handleDeliveries(
                record -> {
                    isFirst(record);
                    throw new IllegalStateException("not yet");
                },
                record -> isRedelivered(record, false));
    }

    static void settlePerRecord(ScenarioContext context) throws InterruptedException {
        Map<String, List<Object>> again = new HashMap<>();
        try (Consumer consumer = context.openConsumer()) {
            Batch batch = take(consumer);
            equal(
                    batch.stream().map(BatchRecord::valueAsText).toList(),
                    IntStream.range(0, 10).mapToObj(String::valueOf).toList());
            batch.get(4).nack("four");
            batch.get(5).reject("five");
            batch.get(6).release();
            expectSettled(batch.ack());
            while (again.size() < 2) {
                batch = take(consumer);
                batch.forEach(record ->
                        again.put(record.valueAsText(), List.of(record.attempt(), record.possiblyProcessed())));
                expectSettled(batch.ack());
            }
        }
        equal(again, Map.of("4", List.of(2, false), "6", List.of(1, false)));
    }

    static void partialSettle(ScenarioContext context) throws InterruptedException {
        try (Consumer consumer = context.openConsumer()) {
            Batch batch = take(consumer);
            equal(batch.size(), 10);
            batch.records().subList(0, 4).forEach(BatchRecord::ack);
            expectSettled(batch.flush());
            say("flushed");
            waitForGo();
            expectSettled(batch.ack());
        }
    }

    static void reject(ScenarioContext context) throws InterruptedException {
        context.handleDeliveriesWith(worker -> worker.name("scenario-worker"), record -> {
            throw SettleAs.reject("a bad card ✗");
        });
    }

    static void release(ScenarioContext context) throws InterruptedException {
        context.handleDeliveries(
                record -> {
                    throw SettleAs.release();
                },
                ScenarioContext::isFirst);
    }

    static void overloaded(ScenarioContext context) throws InterruptedException {
        context.handleDeliveries(
                record -> {
                    throw SettleAs.overloaded("", Duration.ofMillis(50));
                },
                ScenarioContext::isFirst);
    }

    static void chosenDelay(ScenarioContext context) throws InterruptedException {
        AtomicLong retriedAt = new AtomicLong();
        context.handleDeliveries(
                record -> {
                    retriedAt.set(System.nanoTime());
                    throw SettleAs.retry("later", Duration.ofMillis(300));
                },
                record -> {
                    isRedelivered(record, false);
                    expect(System.nanoTime() - retriedAt.get() >= 300_000_000, "it came too early");
                });
    }

    static void poisonIsolated(ScenarioContext context) throws InterruptedException {
        context.runUntilSigterm(context.worker(batch -> {
            if (batch.stream().anyMatch(record -> "poison".equals(record.valueAsText()))) {
                throw new IllegalStateException("poison found");
            }
            say("did", batch.size());
        }));
    }
}
