package io.offramp;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.offramp.v1.Outcome;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

class AsyncHandlerTest extends FakeSidecarTest {
    @Test
    void aStageThatGivesAnotherStageIsDoneWhenThatOneIs() throws Exception {
        sidecar.offer(List.of(1));
        CompletableFuture<Void> work = new CompletableFuture<>();
        offramp.worker("orders")
                .asyncHandler(batch -> CompletableFuture.completedFuture(batch).thenApply(one -> work))
                .start();
        work.completeExceptionally(new IllegalStateException("the bank is closed"));
        sidecar.until(() -> !sidecar.said.isEmpty());
        FakeSidecar.Said said = sidecar.said.get(0);
        assertEquals(Outcome.OUTCOME_NACK, said.outcome());
        assertEquals("IllegalStateException: the bank is closed", said.reason());
    }
}
