package io.offramp;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.google.protobuf.ByteString;
import io.grpc.stub.ClientCallStreamObserver;
import io.offramp.v1.ConsumeRequest;
import io.offramp.v1.ConsumeResponse;
import io.offramp.v1.Record;
import io.offramp.v1.Settlement;
import io.offramp.v1.Welcome;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** One stream without a server, so that the order of concurrent events can be fixed. */
@Timeout(60)
class SessionTest implements Session.Listener {
    private final ScheduledExecutorService thread = Executors.newSingleThreadScheduledExecutor();
    private final Inbox inbox = new Inbox();
    private final Outbox outbox = new Outbox(null);
    private final RecordedRequests requests = new RecordedRequests();

    @Test
    void aTakerThatComesBeforeAShrunkCreditIsSentIsCounted() throws Exception {
        CompletableFuture<Void> stalled = new CompletableFuture<>();
        Settings settings = new Settings(
                "orders", 2, 0, 1 << 20, 0, null, Duration.ofNanos(1), Duration.ZERO, "test", 0, (batch, result) -> {});
        Settler settler = new Settler() {
            @Override
            public CompletableFuture<SettleResult> settle(Batch batch, Settlement settlement, boolean automatic) {
                // The waiting batch is being released; before that is written, a taker polls.
                try {
                    assertNull(inbox.take(0, 1));
                } catch (InterruptedException error) {
                    throw new AssertionError(error);
                }
                stalled.complete(null);
                return outbox.settle(new PendingSettlement(batch, settlement, automatic));
            }

            @Override
            public CompletableFuture<Duration> extend(Batch batch, Duration by) {
                throw new AssertionError();
            }
        };
        Session session = new Session(settings, settler, inbox, outbox, thread, this);
        inbox.onWait(session::onWait);
        session.beforeStart(requests);
        thread.execute(() -> session.onNext(ConsumeResponse.newBuilder()
                .setWelcome(Welcome.getDefaultInstance())
                .addBatches(io.offramp.v1.Batch.newBuilder()
                        .setLease(ByteString.copyFromUtf8("lease"))
                        .addRecords(Record.getDefaultInstance()))
                .build()));
        stalled.get();
        thread.submit(session::write).get();
        thread.shutdown();
        thread.awaitTermination(30, TimeUnit.SECONDS);
        List<Integer> credits = requests.requests.stream()
                .filter(ConsumeRequest::hasCredit)
                .map(request -> request.getCredit().getBatches())
                .toList();
        assertEquals(List.of(1), credits);
    }

    @Override
    public void onWelcome(Welcome welcome) {}

    @Override
    public void onEnd(Session session, Throwable error) {}

    /** Keeps what is written. */
    private static final class RecordedRequests extends ClientCallStreamObserver<ConsumeRequest> {
        final List<ConsumeRequest> requests = new ArrayList<>();

        @Override
        public void onNext(ConsumeRequest request) {
            requests.add(request);
        }

        @Override
        public void onError(Throwable error) {}

        @Override
        public void onCompleted() {}

        @Override
        public void cancel(String message, Throwable cause) {}

        @Override
        public boolean isReady() {
            return true;
        }

        @Override
        public void setOnReadyHandler(Runnable handler) {}

        @Override
        public void request(int count) {}

        @Override
        public void setMessageCompression(boolean enable) {}

        @Override
        public void disableAutoInboundFlowControl() {}
    }
}
