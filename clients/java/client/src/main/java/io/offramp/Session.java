package io.offramp;

import com.google.protobuf.ByteString;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.offramp.v1.ConsumeRequest;
import io.offramp.v1.ConsumeResponse;
import io.offramp.v1.ConsumerServiceGrpc.ConsumerServiceStub;
import io.offramp.v1.Notice;
import io.offramp.v1.Welcome;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One Consume stream, from hello to its end. Lives on the link's thread, which alone reads and writes the stream.
 *
 * <p>What is said outlives a session, and is in the outbox; batches that it brought do not.
 */
final class Session implements ClientResponseObserver<ConsumeRequest, ConsumeResponse> {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");
    /** Bytes of a request; of a sidecar that does not say what it takes. */
    private static final long REQUEST_BYTES = 4 << 20;

    /** Whoever keeps the connection up. */
    interface Owner {
        void welcomed(Welcome welcome);

        /** The stream is over; null if it ended in order. */
        void ended(Session session, Throwable error);
    }

    private final Settings settings;
    private final Desk desk;
    private final Inbox inbox;
    private final Outbox outbox;
    private final ScheduledExecutorService thread;
    private final Owner owner;
    private final Flow flow;
    /** Batches that came and are not settled, by lease. */
    private final Map<ByteString, Batch> held = new HashMap<>();

    private ClientCallStreamObserver<ConsumeRequest> requests;
    private volatile boolean welcomed;
    private long welcomedAt;
    private long requestBytes = REQUEST_BYTES;
    /** What the sidecar was last asked for. */
    private int asked;

    private boolean draining;
    private boolean saidDraining;
    private boolean halfClose;
    private boolean halfClosed;
    /** The stream is to be cut once everything is answered. */
    private boolean abandon;

    private boolean cut;
    private boolean ended;
    private Throwable failure;
    private ScheduledFuture<?> timer;
    /** Called when nothing is held any more. */
    private Runnable onEmpty = () -> {};
    private boolean warned;

    Session(
            Settings settings,
            Desk desk,
            Inbox inbox,
            Outbox outbox,
            ScheduledExecutorService thread,
            Owner owner) {
        this.settings = settings;
        this.desk = desk;
        this.inbox = inbox;
        this.outbox = outbox;
        this.thread = thread;
        this.owner = owner;
        this.flow = new Flow(settings.credit(), settings.waitingNanos());
        this.asked = flow.ask();
    }

    void start(ConsumerServiceStub stub) {
        stub.withExecutor(thread).consume(this);
        requests.onNext(settings.hello(asked));
    }

    boolean welcomed() {
        return welcomed;
    }

    /** Since the sidecar's welcome; 0 without one. */
    long lastedMs() {
        return welcomed ? TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - welcomedAt) : 0;
    }

    // Leaving

    /** Ask for no further batch and give back those that nobody has taken. */
    void drain() {
        draining = true;
        giveBack(inbox.takeBack(null));
        write();
    }

    /**
     * End the stream once everything is said. If a batch is still in hand the stream is cut once everything is answered,
     * so that the sidecar takes it for possibly processed.
     */
    void leave() {
        drain();
        if (inHand() > 0) {
            abandon = true;
            checkAbandoned();
        } else {
            halfClose = true;
        }
        write();
    }

    /** Calls this once all that came is settled, and that was said. */
    void whenSettled(Runnable call) {
        if (held.isEmpty()) {
            call.run();
        } else {
            onEmpty = call;
        }
    }

    private void checkAbandoned() {
        if (abandon && outbox.answeredAll()) {
            cut("leaving with batches in hand");
        }
    }

    /** End the stream at once. */
    void cut(String why) {
        if (!ended && !cut) {
            cut = true;
            requests.cancel(why, null);
        }
    }

    // Writing

    /** Says what there is to say. */
    void write() {
        // The sidecar's limits hold for all that follows its welcome.
        if (!welcomed || ended || cut || halfClosed) {
            return;
        }
        for (ConsumeRequest request; (request = nextRequest()) != null; ) {
            requests.onNext(request);
        }
        if (held.isEmpty()) {
            onEmpty.run();
        }
        if (halfClose) {
            halfClosed = true;
            requests.onCompleted();
        }
    }

    private ConsumeRequest nextRequest() {
        // Each alone and before what is given back, or else that would be sent to this process again.
        if (draining && !saidDraining) {
            saidDraining = true;
            return ConsumeRequest.newBuilder().setDraining(true).build();
        }
        if (asked != flow.ask() && !draining) {
            asked = flow.ask();
            return ConsumeRequest.newBuilder().setCredit(settings.asCredit(asked)).build();
        }
        return outbox.nextRequest(requestBytes, this::onSettled);
    }

    private void onSettled(Batch batch) {
        if (held.remove(batch.lease()) != null && batch.takenAt != 0) {
            flow.settled(System.nanoTime() - batch.takenAt);
        }
    }

    // Reading

    @Override
    public void beforeStart(ClientCallStreamObserver<ConsumeRequest> stream) {
        requests = stream;
    }

    @Override
    public void onNext(ConsumeResponse response) {
        try {
            receive(response);
        } catch (RuntimeException error) {
            failure = error;
            cut("cannot go on");
        }
    }

    private void receive(ConsumeResponse response) {
        if (response.hasWelcome()) {
            welcome(response.getWelcome());
        }
        if (response.getResultsCount() > 0) {
            outbox.answered(response.getResultsList());
            checkAbandoned();
        }
        if (response.getExtendedCount() > 0) {
            outbox.extended(response.getExtendedList());
        }
        for (Notice notice : response.getNoticesList()) {
            notice(notice);
        }
        if (response.getBatchesCount() > 0) {
            takeIn(response.getBatchesList());
        }
        write();
    }

    private void welcome(Welcome welcome) {
        long most = welcome.getLimits().getMaxRequestBytes();
        requestBytes = most > 0 ? most : REQUEST_BYTES;
        welcomedAt = System.nanoTime();
        welcomed = true;
        owner.welcomed(welcome);
    }

    private void takeIn(List<io.offramp.v1.Batch> messages) {
        long now = System.nanoTime();
        List<Batch> came = new ArrayList<>(messages.size());
        for (io.offramp.v1.Batch message : messages) {
            Batch batch = new Batch(message, desk, now);
            held.put(batch.lease(), batch);
            came.add(batch);
        }
        if (draining) {
            // They crossed with our `draining`.
            giveBack(came);
            return;
        }
        came.forEach(inbox::put);
        watch();
    }

    private void notice(Notice notice) {
        String what;
        switch (notice.getKind()) {
            case NOTICE_KIND_REVOKED -> {
                what = "lanes moved to another sidecar; batches of theirs are lost";
                for (ByteString lease : notice.getLeasesList()) {
                    Batch batch = held.get(lease);
                    if (batch != null) {
                        batch.lose();
                    }
                }
                giveBack(inbox.takeBack(new HashSet<>(notice.getLeasesList())));
            }
            case NOTICE_KIND_DRAINING -> what = "the sidecar is stopping; what is in hand can still be settled";
            case NOTICE_KIND_PAUSED -> what = "the subscription is paused";
            case NOTICE_KIND_RESUMED -> what = "the subscription goes on";
            default -> {
                return;
            }
        }
        String detail = notice.getDetail();
        log.info("{}: {}{}", settings.subscription(), what, detail.isEmpty() ? "" : ": " + detail);
    }

    @Override
    public void onError(Throwable error) {
        boolean asWeWished = cut && failure == null;
        end(failure != null ? failure : asWeWished ? null : error);
    }

    @Override
    public void onCompleted() {
        end(failure);
    }

    /** Leases end with their session: what waited is forgotten, what is in hand is known to be lost. */
    private void end(Throwable error) {
        if (ended) {
            return;
        }
        ended = true;
        if (timer != null) {
            timer.cancel(false);
        }
        inbox.takeBack(null);
        held.values().forEach(Batch::lose);
        held.clear();
        outbox.disconnected();
        owner.ended(this, error);
    }

    // Flow

    /** A worker waits for a batch and there is none. */
    void wanted() {
        // What was written last may be more than what is wanted by now, and about to be taken back.
        if (held.size() < asked && asked == flow.ask() && asked == flow.credit) {
            return;
        }
        int inHand = inHand();
        flow.wanted(inHand, inbox.waiting());
        if (flow.ask() != asked) {
            write();
        }
        if (inHand >= flow.credit && !warned) {
            warned = true;
            log.warn(
                    "{}: {} batches are in hand and unsettled, which is all that was asked for: no further one will come "
                            + "until one of them is settled",
                    settings.subscription(),
                    inHand);
        }
    }

    private int inHand() {
        int unsettled = 0;
        for (Batch batch : held.values()) {
            if (!batch.settled()) {
                unsettled++;
            }
        }
        return unsettled - inbox.size();
    }

    /** See to it that no batch waits longer than it may. */
    private void watch() {
        Batch oldest = inbox.oldest();
        if (timer == null && oldest != null) {
            long left = oldest.receivedAt + flow.patienceNanos - System.nanoTime();
            timer = thread.schedule(this::checkPatience, Math.max(left, 0), TimeUnit.NANOSECONDS);
        }
    }

    private void checkPatience() {
        timer = null;
        Batch oldest = inbox.oldest();
        if (oldest != null && System.nanoTime() - oldest.receivedAt >= flow.patienceNanos) {
            int inHand = inHand();
            List<Batch> waited = inbox.takeBack(null);
            flow.stalled(inHand);
            giveBack(waited);
            log.debug("{}: gave back {} batches that no worker took", settings.subscription(), waited.size());
        }
        watch();
    }

    private static void giveBack(List<Batch> batches) {
        for (Batch batch : batches) {
            batch.settleRest(Verdict.RELEASE, true);
        }
    }
}
