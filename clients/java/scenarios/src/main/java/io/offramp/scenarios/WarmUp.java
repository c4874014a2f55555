package io.offramp.scenarios;

import com.google.protobuf.ByteString;
import io.grpc.Server;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.StreamObserver;
import io.offramp.Message;
import io.offramp.Offramp;
import io.offramp.Publisher;
import io.offramp.Worker;
import io.offramp.v1.Batch;
import io.offramp.v1.ConsumeRequest;
import io.offramp.v1.ConsumeResponse;
import io.offramp.v1.ConsumerServiceGrpc;
import io.offramp.v1.PublishRequest;
import io.offramp.v1.PublishResponse;
import io.offramp.v1.PublishServiceGrpc;
import io.offramp.v1.PublishStatus;
import io.offramp.v1.Published;
import io.offramp.v1.Record;
import io.offramp.v1.SettleResult;
import io.offramp.v1.Settlement;
import io.offramp.v1.Welcome;
import java.util.concurrent.CountDownLatch;

/**
 * Uses the client once, with a server in this process, so that its classes are loaded: the build stores them in an
 * archive, with which the runner starts in half the time.
 */
final class WarmUp {
    private WarmUp() {}

    static void run() throws Exception {
        Server server = NettyServerBuilder.forPort(0)
                .addService(new Consuming())
                .addService(new Publishing())
                .build()
                .start();
        CountDownLatch handled = new CountDownLatch(1);
        try (Offramp offramp = Offramp.connect("127.0.0.1:" + server.getPort());
                Publisher publisher = offramp.publisher().broker("local").open();
                Worker worker = offramp.worker("orders")
                        .handler(batch -> {
                            batch.forEach(record -> record.reject(record.valueAsText()));
                            publisher.publish("replies", Message.of("1").withKey("k").withHeader("h", "1"));
                            handled.countDown();
                        })
                        .start()) {
            handled.await();
        }
        server.shutdownNow();
    }

    private static final class Publishing extends PublishServiceGrpc.PublishServiceImplBase {
        @Override
        public void publish(PublishRequest request, StreamObserver<PublishResponse> answer) {
            Published.Builder place = Published.newBuilder().setStatus(PublishStatus.PUBLISH_STATUS_PUBLISHED);
            answer.onNext(PublishResponse.newBuilder().addPublished(place).build());
            answer.onCompleted();
        }
    }

    /** Delivers one batch with one record, and answers settlements. */
    private static final class Consuming extends ConsumerServiceGrpc.ConsumerServiceImplBase {
        @Override
        public StreamObserver<ConsumeRequest> consume(StreamObserver<ConsumeResponse> responses) {
            return new StreamObserver<>() {
                @Override
                public void onNext(ConsumeRequest request) {
                    ConsumeResponse.Builder response = ConsumeResponse.newBuilder();
                    if (request.hasHello()) {
                        Record record = Record.newBuilder().setValue(ByteString.copyFromUtf8("1")).build();
                        response.setWelcome(Welcome.getDefaultInstance())
                                .addBatches(Batch.newBuilder().setTopic("orders").addRecords(record));
                    }
                    for (Settlement settlement : request.getSettlementsList()) {
                        response.addResults(SettleResult.newBuilder().setLease(settlement.getLease()).setStatusValue(1));
                    }
                    responses.onNext(response.build());
                }

                @Override
                public void onError(Throwable error) {}

                @Override
                public void onCompleted() {
                    responses.onCompleted();
                }
            };
        }
    }
}
