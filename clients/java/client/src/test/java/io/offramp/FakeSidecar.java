package io.offramp;

import com.google.protobuf.ByteString;
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
import io.offramp.v1.ExtendResult;
import io.offramp.v1.Extension;
import io.offramp.v1.Hello;
import io.offramp.v1.Limits;
import io.offramp.v1.Notice;
import io.offramp.v1.NoticeKind;
import io.offramp.v1.Outcome;
import io.offramp.v1.Part;
import io.offramp.v1.PublishRequest;
import io.offramp.v1.PublishResponse;
import io.offramp.v1.PublishServiceGrpc;
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
 * A small sidecar behind a real socket that takes the rules of {@code ConsumerService.Consume} seriously, and remembers
 * what it saw. It keeps to the credit, and delivers again what was not acked or rejected.
 *
 * <p>What a client does against the rules is in {@code violations}; closing it with any fails the test.
 */
final class FakeSidecar implements AutoCloseable {
    /** Far longer than anything here takes. */
    static final long PATIENCE_MS = 30_000;

    /** Records that are to be delivered together. */
    record Parcel(List<Record> records, int attempt, boolean possiblyProcessed) {}

    /** What was said of a record. {@code retryAfterMs}: null if nothing was. */
    record Said(String value, Outcome outcome, String reason, Long retryAfterMs) {}

    private record Lease(Parcel parcel, Session session, Set<Integer> left) {}

    /** One client's stream, as this side saw it. */
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
    final Deque<Parcel> ready = new ArrayDeque<>();
    final List<Said> said = new ArrayList<>();
    final List<String> violations = new ArrayList<>();
    final List<PublishRequest> published = new ArrayList<>();
    /** Batches that are on their way when the client says that it drains. */
    final Deque<Parcel> crossing = new ArrayDeque<>();
    /** Refuses every call. */
    Status refuse;
    /** Answers instead of the truth; null from it is the truth. */
    Function<Settlement, SettleStatus> answer = settlement -> null;
    /** Settlements are read, but neither counted nor answered. */
    boolean deaf;
    /** Does not end a stream that the client has half-closed. */
    boolean stayOpen;

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

    /** As abruptly as gRPC can. Returns when all sessions are over, with what they held ready again. */
    void stop() throws InterruptedException {
        server.shutdownNow();
        server.awaitTermination(PATIENCE_MS, TimeUnit.MILLISECONDS);
        until(() -> sessions.stream().allMatch(session -> session.ended));
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
            ready.add(new Parcel(records, 1, false));
        }
        deliver();
    }

    synchronized void offerRecords(Record... records) {
        ready.add(new Parcel(List.of(records), 1, false));
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

    /** Returns when it is true. */
    synchronized void until(BooleanSupplier what) throws InterruptedException {
        long ends = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        while (!what.getAsBoolean()) {
            long left = TimeUnit.NANOSECONDS.toMillis(ends - System.nanoTime());
            if (left <= 0) {
                throw new AssertionError("it did not happen; said: " + said + ", ready: " + ready.size());
            }
            wait(left);
        }
    }

    /** Values of the records that were settled so. */
    synchronized List<String> of(Outcome outcome) {
        return said.stream().filter(one -> one.outcome == outcome).map(Said::value).toList();
    }

    List<String> acked() {
        return of(Outcome.OUTCOME_ACK);
    }

    /** That session, once it is there. */
    Session begun(int number) throws InterruptedException {
        until(() -> sessions.size() > number);
        return sessions.get(number);
    }

    @Override
    public void close() throws InterruptedException {
        server.shutdownNow();
        server.awaitTermination(PATIENCE_MS, TimeUnit.MILLISECONDS);
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS);
        if (!violations.isEmpty()) {
            throw new AssertionError(violations.toString());
        }
    }

    // The services

    private final class Publishing extends PublishServiceGrpc.PublishServiceImplBase {
        @Override
        public void publish(PublishRequest request, StreamObserver<PublishResponse> responses) {
            synchronized (FakeSidecar.this) {
                if (refuse != null) {
                    responses.onError(refuse.asException());
                    return;
                }
                published.add(request);
                PublishResponse.Builder response = PublishResponse.newBuilder();
                for (int place = 0; place < request.getMessagesCount(); place++) {
                    response.addPublished(Published.newBuilder().setLane(1).setPosition(place));
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
                    responses.onError(refuse.asException());
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
            Limits limits = Limits.newBuilder().setMaxRequestBytes(maxRequestBytes).build();
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
                if (!stayOpen) {
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
                List<Record> records = lease.left.stream().map(lease.parcel.records::get).toList();
                ready.addFirst(new Parcel(
                        records,
                        lease.parcel.attempt + (lost ? 1 : 0),
                        lease.parcel.possiblyProcessed || lost));
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

    private void send(Session session, Parcel parcel) {
        ByteString lease = ByteString.copyFromUtf8("lease " + counter++);
        Set<Integer> all = new TreeSet<>();
        for (int index = 0; index < parcel.records.size(); index++) {
            all.add(index);
        }
        leases.put(lease, new Lease(parcel, session, all));
        session.unsettled.add(lease);
        session.sent.add(lease);
        io.offramp.v1.Batch.Builder batch = io.offramp.v1.Batch.newBuilder()
                .setLease(lease)
                .setTopic("orders")
                .addLanes(0)
                .addAllRecords(parcel.records)
                .setLeaseForMs(session.hello.getLeaseMs());
        if (parcel.attempt > 1 || parcel.possiblyProcessed) {
            batch.addRedeliveries(Redelivery.newBuilder()
                    .setCount(parcel.records.size())
                    .setAttempt(parcel.attempt)
                    .setPossiblyProcessed(parcel.possiblyProcessed));
        }
        session.responses.onNext(ConsumeResponse.newBuilder().addBatches(batch).build());
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
        if (!deaf) {
            request.getSettlementsList().forEach(settlement -> response.addResults(settle(settlement)));
        }
        for (Extension extension : request.getExtensionsList()) {
            boolean known = leases.containsKey(extension.getLease());
            response.addExtended(ExtendResult.newBuilder()
                    .setLease(extension.getLease())
                    .setStatusValue(known ? 0 : SettleStatus.SETTLE_STATUS_UNKNOWN_VALUE)
                    .setLeaseForMs(known ? extension.getLeaseForMs() : 0));
        }
        if (response.getResultsCount() + response.getExtendedCount() > 0) {
            session.responses.onNext(response.build());
        }
        if (request.getDraining()) {
            while (!crossing.isEmpty()) {
                send(session, crossing.remove());
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
            Record record = lease.parcel.records.get(index);
            said.add(new Said(
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
                new Parcel(records, lease.parcel.attempt + counted, lease.parcel.possiblyProcessed)));
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
        int records = lease == null ? Integer.MAX_VALUE : lease.parcel.records.size();
        int stop = 0;
        for (Part part : settlement.getPartsList()) {
            if (part.getFirst() < stop || part.getCount() == 0 || part.getFirst() + part.getCount() > records) {
                violations.add("parts are not ascending, or not within the batch: " + settlement);
            }
            stop = part.getFirst() + part.getCount();
        }
    }
}
