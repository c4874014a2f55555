package io.offramp;

import com.google.protobuf.ByteString;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollIoHandler;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import io.offramp.v1.ConsumeRequest;
import io.offramp.v1.ConsumeResponse;
import io.offramp.v1.ConsumerServiceGrpc;
import io.offramp.v1.ErrorDetail;
import io.offramp.v1.ErrorInfo;
import io.offramp.v1.ErrorStatus;
import io.offramp.v1.ExtendResult;
import io.offramp.v1.ExtendStatus;
import io.offramp.v1.Extension;
import io.offramp.v1.Hello;
import io.offramp.v1.GetLimitsRequest;
import io.offramp.v1.GetLimitsResponse;
import io.offramp.v1.Limits;
import io.offramp.v1.Notice;
import io.offramp.v1.NoticeKind;
import io.offramp.v1.Outcome;
import io.offramp.v1.Part;
import io.offramp.v1.PublishRequest;
import io.offramp.v1.PublishResponse;
import io.offramp.v1.PublishServiceGrpc;
import io.offramp.v1.PublishStatus;
import io.offramp.v1.Published;
import io.offramp.v1.Record;
import io.offramp.v1.Redelivery;
import io.offramp.v1.SettleResult;
import io.offramp.v1.SettleStatus;
import io.offramp.v1.Settlement;
import io.offramp.v1.Welcome;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Function;

/**
 * A small sidecar behind a real socket that checks the rules of {@code ConsumerService.Consume}, and records what it
 * receives. It keeps to the credit, and redelivers what was not acked or rejected.
 *
 * <p>Where a client breaks the rules is in {@code violations}; closing the sidecar with any fails the test.
 */
final class FakeSidecar implements AutoCloseable {
    /** Far longer than anything here should take. */
    static final long TIMEOUT_MS = 30_000;

    /** Records to be delivered together. */
    record PendingBatch(List<Record> records, int attempt, boolean possiblyProcessed) {}

    /** How a record was settled. {@code retryAfterMs}: null if it was not set. */
    record SettledRecord(String value, Outcome outcome, String reason, Long retryAfterMs) {}

    private record Lease(PendingBatch batch, Session session, Set<Integer> left) {}

    /** One client's stream, as the sidecar sees it. */
    static final class Session {
        final Hello hello;
        final List<ConsumeRequest> requests = new ArrayList<>();
        final Set<ByteString> unsettled = new HashSet<>();
        /** Leases of batches that were sent, in order. */
        final List<ByteString> sent = new ArrayList<>();

        private final ServerCallStreamObserver<ConsumeResponse> responses;
        int credit;
        boolean draining;
        boolean halfClosed;
        boolean ended;

        Session(Hello hello, ServerCallStreamObserver<ConsumeResponse> responses) {
            this.hello = hello;
            this.credit = hello.getCredit().getBatches();
            this.responses = responses;
        }

        List<Settlement> settlements() {
            return requests.stream().flatMap(request -> request.getSettlementsList().stream()).toList();
        }
    }

    final String address;
    final List<Session> sessions = new ArrayList<>();
    final Deque<PendingBatch> ready = new ArrayDeque<>();
    final List<SettledRecord> settled = new ArrayList<>();
    final List<String> violations = new ArrayList<>();
    final List<PublishRequest> published = new ArrayList<>();
    /** By the index of a message: a result that says that it is not published. */
    final Map<Integer, Published> notPublished = new HashMap<>();
    /** Batches that are sent when the client says that it drains, as if they had been on their way. */
    final Deque<PendingBatch> sentOnDrain = new ArrayDeque<>();
    /** Refuses every call. */
    Status refuse;
    /** Said with it, as a sidecar does; empty: as gRPC itself refuses. */
    String reason = "";

    boolean retryable;
    /** How often the limits were asked for. */
    int limitsAsked;
    /** The status to answer instead of the true one; null: the true one. */
    Function<Settlement, SettleStatus> answer = settlement -> null;
    /** Settlements are read, but neither counted nor answered. */
    boolean ignoreSettlements;
    /** Does not end a stream that the client has half-closed. */
    boolean keepStreamOpen;

    int maxRequestBytes = 4 << 20;

    private final Path path;
    private final EventLoopGroup group = new MultiThreadIoEventLoopGroup(1, EpollIoHandler.newFactory());
    private final Map<ByteString, Lease> leases = new LinkedHashMap<>();
    private Server server;
    private int counter;

    FakeSidecar(Path folder) {
        this.path = folder.resolve("s");
        this.address = "unix:" + path;
    }

    static FakeSidecar started(Path folder) throws IOException {
        FakeSidecar sidecar = new FakeSidecar(folder);
        sidecar.start();
        return sidecar;
    }

    // For tests

    synchronized void start() throws IOException {
        leases.clear();
        server = NettyServerBuilder.forAddress(new DomainSocketAddress(path.toString()))
                .bossEventLoopGroup(group)
                .workerEventLoopGroup(group)
                .channelType(EpollServerDomainSocketChannel.class)
                .maxInboundMessageSize(maxRequestBytes)
                .directExecutor()
                .addService(new Consuming())
                .addService(new Publishing())
                .build()
                .start();
    }

    /** Stops as abruptly as gRPC can. Returns when all sessions have ended and their batches are ready again. */
    void stop() throws InterruptedException {
        server.shutdownNow();
        server.awaitTermination(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        eventually(() -> sessions.stream().allMatch(session -> session.ended));
    }

    void restart() throws Exception {
        stop();
        start();
    }

    /** Each argument is a batch. */
    synchronized void offer(List<?>... batches) {
        for (List<?> batch : batches) {
            List<Record> records = new ArrayList<>();
            for (Object value : batch) {
                records.add(Record.newBuilder()
                        .setValue(ByteString.copyFromUtf8(value.toString()))
                        .setPosition(counter++)
                        .build());
            }
            ready.add(new PendingBatch(records, 1, false));
        }
        deliver();
    }

    synchronized void offerRecords(Record... records) {
        ready.add(new PendingBatch(List.of(records), 1, false));
        deliver();
    }

    synchronized void respond(ConsumeResponse response) {
        sessions.get(sessions.size() - 1).responses.onNext(response);
    }

    void notice(NoticeKind kind, ByteString... of) {
        respond(ConsumeResponse.newBuilder()
                .addNotices(Notice.newBuilder().setKind(kind).addAllLeases(List.of(of)))
                .build());
    }

    /** Waits until it is true. */
    synchronized void eventually(BooleanSupplier what) throws InterruptedException {
        long ends = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TIMEOUT_MS);
        while (!what.getAsBoolean()) {
            long left = TimeUnit.NANOSECONDS.toMillis(ends - System.nanoTime());
            if (left <= 0) {
                throw new AssertionError("timeout; settled: " + settled + ", ready: " + ready.size());
            }
            wait(left);
        }
    }

    /** Values of the records that were settled with this outcome. */
    synchronized List<String> settledWith(Outcome outcome) {
        return settled.stream().filter(record -> record.outcome == outcome).map(SettledRecord::value).toList();
    }

    List<String> acked() {
        return settledWith(Outcome.OUTCOME_ACK);
    }

    /** The session with this number, once it exists. */
    Session session(int number) throws InterruptedException {
        eventually(() -> sessions.size() > number);
        return sessions.get(number);
    }

    @Override
    public void close() throws InterruptedException {
        server.shutdownNow();
        server.awaitTermination(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS);
        if (!violations.isEmpty()) {
            throw new AssertionError(violations.toString());
        }
    }

    // The services

    private Throwable refusal() {
        Metadata trailers = new Metadata();
        if (!reason.isEmpty()) {
            ErrorInfo info = ErrorInfo.newBuilder()
                    .setReason(reason)
                    .setDomain("offramp.v1")
                    .putMetadata("retryable", String.valueOf(retryable))
                    .build();
            ErrorStatus details = ErrorStatus.newBuilder()
                    .setCode(refuse.getCode().value())
                    .addDetails(ErrorDetail.newBuilder()
                            .setTypeUrl("type.googleapis.com/google.rpc.ErrorInfo")
                            .setValue(info.toByteString()))
                    .build();
            trailers.put(
                    Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER), details.toByteArray());
        }
        return refuse.asException(trailers);
    }

    private final class Publishing extends PublishServiceGrpc.PublishServiceImplBase {
        @Override
        public void getLimits(GetLimitsRequest request, StreamObserver<GetLimitsResponse> responses) {
            synchronized (FakeSidecar.this) {
                limitsAsked++;
                responses.onNext(GetLimitsResponse.newBuilder()
                        .setMaxRequestBytes(maxRequestBytes)
                        .setMaxMessages(10_000)
                        .build());
                responses.onCompleted();
            }
        }

        @Override
        public void publish(PublishRequest request, StreamObserver<PublishResponse> responses) {
            synchronized (FakeSidecar.this) {
                if (refuse != null) {
                    responses.onError(refusal());
                    return;
                }
                published.add(request);
                PublishResponse.Builder response = PublishResponse.newBuilder();
                for (int place = 0; place < request.getMessagesCount(); place++) {
                    Published.Builder done = Published.newBuilder()
                            .setLane(1)
                            .setPosition(place)
                            .setStatus(PublishStatus.PUBLISH_STATUS_PUBLISHED);
                    response.addPublished(notPublished.getOrDefault(place, done.build()));
                }
                responses.onNext(response.build());
                responses.onCompleted();
                FakeSidecar.this.notifyAll();
            }
        }
    }

    private final class Consuming extends ConsumerServiceGrpc.ConsumerServiceImplBase {
        @Override
        public StreamObserver<ConsumeRequest> consume(StreamObserver<ConsumeResponse> responses) {
            return new Stream((ServerCallStreamObserver<ConsumeResponse>) responses);
        }
    }

    private final class Stream implements StreamObserver<ConsumeRequest> {
        private final ServerCallStreamObserver<ConsumeResponse> responses;
        private Session session;

        Stream(ServerCallStreamObserver<ConsumeResponse> responses) {
            this.responses = responses;
            responses.setOnCancelHandler(this::lost);
        }

        @Override
        public void onNext(ConsumeRequest request) {
            synchronized (FakeSidecar.this) {
                if (session != null) {
                    session.requests.add(request);
                    apply(session, request);
                } else if (refuse != null) {
                    responses.onError(refusal());
                } else {
                    begin(request);
                }
                deliver();
            }
        }

        private void begin(ConsumeRequest request) {
            if (!request.hasHello() || !request.getHello().getClient().getLanguage().equals("java")) {
                violations.add("the first request has no proper hello");
            }
            session = new Session(request.getHello(), responses);
            sessions.add(session);
            Limits limits = Limits.newBuilder()
                    .setMaxRequestBytes(maxRequestBytes)
                    .setMaxRequestEntries(10_000)
                    .build();
            responses.onNext(ConsumeResponse.newBuilder()
                    .setWelcome(Welcome.newBuilder().setSidecarVersion("fake").setLimits(limits))
                    .build());
        }

        @Override
        public void onError(Throwable error) {
            lost();
        }

        private void lost() {
            synchronized (FakeSidecar.this) {
                end(true);
            }
        }

        @Override
        public void onCompleted() {
            synchronized (FakeSidecar.this) {
                if (session == null) {
                    return;
                }
                session.halfClosed = true;
                if (!keepStreamOpen) {
                    responses.onCompleted();
                    end(false);
                }
            }
        }

        /** Leases end with the session: released if the client left in order, else possibly processed. */
        private void end(boolean lost) {
            if (session == null || session.ended) {
                return;
            }
            session.ended = true;
            leases.values().removeIf(lease -> {
                if (lease.session != session) {
                    return false;
                }
                List<Record> records = lease.left.stream().map(lease.batch.records::get).toList();
                ready.addFirst(new PendingBatch(
                        records,
                        lease.batch.attempt + (lost ? 1 : 0),
                        lease.batch.possiblyProcessed || lost));
                return true;
            });
            deliver();
        }
    }

    private void deliver() {
        for (Session session : sessions) {
            while (!session.ended && !session.draining && !ready.isEmpty()
                    && session.unsettled.size() < session.credit) {
                send(session, ready.remove());
            }
        }
        notifyAll();
    }

    private void send(Session session, PendingBatch batch) {
        ByteString lease = ByteString.copyFromUtf8("lease " + counter++);
        Set<Integer> all = new TreeSet<>();
        for (int index = 0; index < batch.records.size(); index++) {
            all.add(index);
        }
        leases.put(lease, new Lease(batch, session, all));
        session.unsettled.add(lease);
        session.sent.add(lease);
        io.offramp.v1.Batch.Builder message = io.offramp.v1.Batch.newBuilder()
                .setLease(lease)
                .setTopic("orders")
                .addLanes(0)
                .addAllRecords(batch.records)
                .setLeaseForMs(session.hello.getLeaseMs());
        if (batch.attempt > 1 || batch.possiblyProcessed) {
            message.addRedeliveries(Redelivery.newBuilder()
                    .setCount(batch.records.size())
                    .setAttempt(batch.attempt)
                    .setPossiblyProcessed(batch.possiblyProcessed));
        }
        session.responses.onNext(ConsumeResponse.newBuilder().addBatches(message).build());
    }

    private void apply(Session session, ConsumeRequest request) {
        if (request.hasHello()) {
            violations.add("a second hello");
        }
        if (session.draining && request.hasCredit()) {
            violations.add("credit after draining");
        }
        if (request.getSerializedSize() == 0) {
            violations.add("an empty request");
        }
        ConsumeResponse.Builder response = ConsumeResponse.newBuilder();
        if (!ignoreSettlements) {
            request.getSettlementsList().forEach(settlement -> response.addResults(settle(settlement)));
        }
        for (Extension extension : request.getExtensionsList()) {
            boolean known = leases.containsKey(extension.getLease());
            response.addExtended(ExtendResult.newBuilder()
                    .setLease(extension.getLease())
                    .setStatus(known ? ExtendStatus.EXTEND_STATUS_EXTENDED : ExtendStatus.EXTEND_STATUS_UNKNOWN)
                    .setLeaseForMs(known ? extension.getLeaseForMs() : 0));
        }
        if (response.getResultsCount() + response.getExtendedCount() > 0) {
            session.responses.onNext(response.build());
        }
        if (request.getDraining()) {
            while (!sentOnDrain.isEmpty()) {
                send(session, sentOnDrain.remove());
            }
        }
        if (request.hasCredit()) {
            session.credit = request.getCredit().getBatches();
        }
        session.draining = session.draining || request.getDraining();
    }

    private SettleResult settle(Settlement settlement) {
        check(settlement);
        SettleResult.Builder result = SettleResult.newBuilder().setLease(settlement.getLease());
        SettleStatus status = answer.apply(settlement);
        if (status != null) {
            return result.setStatus(status).setDetail("as the test says").build();
        }
        Lease lease = leases.get(settlement.getLease());
        if (lease == null) {
            return result.setStatus(SettleStatus.SETTLE_STATUS_UNKNOWN).build();
        }
        Map<Integer, Part> spoken = new HashMap<>();
        for (Part part : settlement.getPartsList()) {
            for (int index = part.getFirst(); index < part.getFirst() + part.getCount(); index++) {
                spoken.put(index, part);
            }
        }
        Map<Integer, List<Record>> again = new LinkedHashMap<>();
        for (int index : settlement.getPartial() ? new TreeSet<>(spoken.keySet()) : new TreeSet<>(lease.left)) {
            if (!lease.left.remove(index)) {
                violations.add("record " + index + " settled twice");
                continue;
            }
            Part part = spoken.getOrDefault(index, asPart(settlement));
            Record record = lease.batch.records.get(index);
            settled.add(new SettledRecord(
                    record.getValue().toStringUtf8(),
                    part.getOutcome(),
                    part.getReason(),
                    part.hasRetryAfterMs() ? part.getRetryAfterMs() : null));
            if (part.getOutcome() != Outcome.OUTCOME_ACK && part.getOutcome() != Outcome.OUTCOME_REJECT) {
                int counted = part.getOutcome() == Outcome.OUTCOME_NACK ? 1 : 0;
                again.computeIfAbsent(counted, key -> new ArrayList<>()).add(record);
            }
        }
        again.forEach((counted, records) -> ready.add(
                new PendingBatch(records, lease.batch.attempt + counted, lease.batch.possiblyProcessed)));
        if (lease.left.isEmpty()) {
            leases.remove(settlement.getLease());
            lease.session.unsettled.remove(settlement.getLease());
        }
        return result.setStatus(SettleStatus.SETTLE_STATUS_SETTLED).build();
    }

    private static Part asPart(Settlement settlement) {
        Part.Builder part = Part.newBuilder().setOutcome(settlement.getOutcome()).setReason(settlement.getReason());
        if (settlement.hasRetryAfterMs()) {
            part.setRetryAfterMs(settlement.getRetryAfterMs());
        }
        return part.build();
    }

    private void check(Settlement settlement) {
        if (settlement.getPartial() != (settlement.getOutcome() == Outcome.OUTCOME_UNSPECIFIED)) {
            violations.add("partial and outcome contradict each other");
        }
        if (settlement.getPartial() && settlement.getPartsCount() == 0) {
            violations.add("partial without parts");
        }
        Lease lease = leases.get(settlement.getLease());
        int records = lease == null ? Integer.MAX_VALUE : lease.batch.records.size();
        int stop = 0;
        for (Part part : settlement.getPartsList()) {
            if (part.getFirst() < stop || part.getCount() == 0 || part.getFirst() + part.getCount() > records) {
                violations.add("parts are not ascending, or not within the batch: " + settlement);
            }
            stop = part.getFirst() + part.getCount();
        }
    }
}
