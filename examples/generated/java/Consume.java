// Consumes with nothing but the stubs generated from proto/: fetches, works, settles with the next fetch.
// Needs no session and no client library. OFFRAMP_ADDRESS is host:port; ends when nothing came for two seconds.

import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.offramp.v1.Batch;
import io.offramp.v1.ConsumerServiceGrpc;
import io.offramp.v1.FetchRequest;
import io.offramp.v1.FetchResponse;
import io.offramp.v1.Outcome;
import io.offramp.v1.Record;
import io.offramp.v1.SettleResult;
import io.offramp.v1.Settlement;
import java.util.ArrayList;
import java.util.List;

public final class Consume {
    public static void main(String[] args) {
        ManagedChannel channel = Grpc.newChannelBuilder(
                        System.getenv("OFFRAMP_ADDRESS"), InsecureChannelCredentials.create())
                .build();
        ConsumerServiceGrpc.ConsumerServiceBlockingStub sidecar = ConsumerServiceGrpc.newBlockingStub(channel);
        List<Settlement> done = new ArrayList<>();
        while (true) {
            FetchResponse answer = sidecar.fetch(FetchRequest.newBuilder()
                    .setSubscription(args[0])
                    .addAllSettlements(done)
                    .setWaitMs(2_000)
                    .build());
            for (SettleResult result : answer.getResultsList()) {
                if (!result.getStatus().name().equals("SETTLE_STATUS_SETTLED")) {
                    System.err.println("not counted, and delivered again: " + result);
                }
            }
            if (answer.getBatchesCount() == 0) {
                break;
            }
            done.clear();
            for (Batch batch : answer.getBatchesList()) {
                for (Record record : batch.getRecordsList()) {
                    System.out.println(record.getValue().toStringUtf8());
                }
                done.add(Settlement.newBuilder()
                        .setLease(batch.getLease())
                        .setOutcome(Outcome.OUTCOME_ACK)
                        .build());
            }
        }
        channel.shutdownNow();
    }
}
