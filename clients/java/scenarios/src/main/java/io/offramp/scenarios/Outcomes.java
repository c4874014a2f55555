package io.offramp.scenarios;

import static io.offramp.scenarios.Play.isAgain;
import static io.offramp.scenarios.Play.isFirst;
import static io.offramp.scenarios.Play.settled;
import static io.offramp.scenarios.Play.take;
import static io.offramp.scenarios.Talk.RECORDS;
import static io.offramp.scenarios.Talk.equal;
import static io.offramp.scenarios.Talk.expect;
import static io.offramp.scenarios.Talk.say;
import static io.offramp.scenarios.Talk.waitForGo;

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

    static void plainAck(Play play) {
        Set<String> seen = new HashSet<>();
        try (Consumer consumer = play.consume()) {
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

    static void nackThenSuccess(Play play) throws InterruptedException {
        play.handled(
                record -> {
                    isFirst(record);
                    throw new IllegalStateException("not yet");
                },
                record -> isAgain(record, false));
    }

    static void settlePerRecord(Play play) throws InterruptedException {
        Map<String, List<Object>> again = new HashMap<>();
        try (Consumer consumer = play.consume()) {
            Batch batch = take(consumer);
            equal(
                    batch.stream().map(BatchRecord::valueAsText).toList(),
                    IntStream.range(0, 10).mapToObj(String::valueOf).toList());
            batch.get(4).nack("four");
            batch.get(5).reject("five");
            batch.get(6).release();
            settled(batch.ack());
            while (again.size() < 2) {
                batch = take(consumer);
                batch.forEach(record ->
                        again.put(record.valueAsText(), List.of(record.attempt(), record.possiblyProcessed())));
                settled(batch.ack());
            }
        }
        equal(again, Map.of("4", List.of(2, false), "6", List.of(1, false)));
    }

    static void partialSettle(Play play) throws InterruptedException {
        try (Consumer consumer = play.consume()) {
            Batch batch = take(consumer);
            equal(batch.size(), 10);
            batch.records().subList(0, 4).forEach(BatchRecord::ack);
            settled(batch.flush());
            say("flushed");
            waitForGo();
            settled(batch.ack());
        }
    }

    static void reject(Play play) throws InterruptedException {
        play.handledBy(worker -> worker.name("scenario-worker"), record -> {
            throw SettleAs.reject("a bad card ✗");
        });
    }

    static void release(Play play) throws InterruptedException {
        play.handled(
                record -> {
                    throw SettleAs.release();
                },
                Play::isFirst);
    }

    static void overloaded(Play play) throws InterruptedException {
        play.handled(
                record -> {
                    throw SettleAs.overloaded("", Duration.ofMillis(50));
                },
                Play::isFirst);
    }

    static void chosenDelay(Play play) throws InterruptedException {
        AtomicLong saidAt = new AtomicLong();
        play.handled(
                record -> {
                    saidAt.set(System.nanoTime());
                    throw SettleAs.retry("later", Duration.ofMillis(300));
                },
                record -> {
                    isAgain(record, false);
                    expect(System.nanoTime() - saidAt.get() >= 300_000_000, "it came too early");
                });
    }

    static void poisonIsolated(Play play) throws InterruptedException {
        play.untilTold(play.worker(batch -> {
            if (batch.stream().anyMatch(record -> "poison".equals(record.valueAsText()))) {
                throw new IllegalStateException("poison found");
            }
            say("did", batch.size());
        }));
    }
}
