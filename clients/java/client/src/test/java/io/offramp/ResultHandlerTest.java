package io.offramp;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.offramp.v1.Outcome;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.FutureTask;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** A handler that returns its work instead of doing it, however javac understood it. */
class ResultHandlerTest extends FakeSidecarTest {
    private static CompletionStage<Void> fail(Batch batch) {
        return CompletableFuture.failedFuture(new IllegalStateException("the bank is closed"));
    }

    static Stream<UnaryOperator<Worker.Builder>> failing() {
        ResultHandler declared = ResultHandlerTest::fail;
        return Stream.of(
                worker -> worker.handler(batch -> fail(batch)),
                worker -> worker.handler((Batch batch) -> fail(batch)),
                worker -> worker.handler(batch -> {
                    return fail(batch);
                }),
                worker -> worker.handler(ResultHandlerTest::fail),
                worker -> worker.handler((Handler) declared),
                worker -> worker.handler(batch -> CompletableFuture.completedFuture(fail(batch))),
                worker -> worker.handler(batch -> {
                    FutureTask<Void> task = new FutureTask<>(() -> {
                        throw new IllegalStateException("the bank is closed");
                    });
                    task.run();
                    return task;
                }));
    }

    @ParameterizedTest
    @MethodSource("failing")
    void failedWorkIsNotAcked(UnaryOperator<Worker.Builder> handler) throws Exception {
        sidecar.offer(List.of(1));
        handler.apply(offramp.worker("orders")).start();
        sidecar.eventually(() -> !sidecar.settled.isEmpty());
        assertEquals(
                new FakeSidecar.SettledRecord(
                        "1", Outcome.OUTCOME_NACK, "IllegalStateException: the bank is closed", null),
                sidecar.settled.get(0));
    }

    @Test
    void aBatchIsDoneWhenItsStageIs() throws Exception {
        sidecar.offer(List.of(1), List.of(2));
        CompletableFuture<Void> first = new CompletableFuture<>();
        offramp.worker("orders")
                .workers(2)
                .handler(batch -> batch.get(0).valueAsText().equals("1") ? first : null)
                .start();
        sidecar.eventually(() -> sidecar.acked().equals(List.of("2")));
        first.complete(null);
        sidecar.eventually(() -> sidecar.acked().equals(List.of("2", "1")));
    }

    @Test
    void aResultThatIsNoWorkIsIgnored() throws Exception {
        sidecar.offer(List.of(1));
        offramp.worker("orders").handler(batch -> batch.size()).start();
        sidecar.eventually(() -> sidecar.acked().equals(List.of("1")));
    }
}
