package io.offramp;

import com.google.protobuf.ByteString;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.offramp.v1.ConsumeRequest;
import io.offramp.v1.ConsumeResponse;
import io.offramp.v1.ConsumerServiceGrpc.ConsumerServiceStub;
import io.offramp.v1.Limits;
import io.offramp.v1.Notice;
import io.offramp.v1.Welcome;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One session with the sidecar: a Consume stream, from hello to its end, and further ones that resume it. Runs on the
 * connection's thread, which alone reads and writes the streams.
 *
 * <p>Settlements outlive a session, in the outbox; the batches that it delivered do not. {@link #start} is called for
 * each stream. After one that broke, {@link #mayBeResumed} says whether to call it again; if not, and in the end, {@link
 * #over} is called.
 */
final class Session implements ClientResponseObserver<ConsumeRequest, ConsumeResponse> {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");
    /** For a sidecar that does not say what it accepts. */
    private static final Limits DEFAULT_LIMITS =
            Limits.newBuilder().setMaxRequestBytes(4 << 20).setMaxRequestEntries(1_000).build();

    interface Listener {
        void onWelcome(Welcome welcome);

        /** The stream has ended; {@code error} is null if it ended in order. */
        void onEnd(Session session, @Nullable Throwable error);
    }

    private final Settings settings;
    private final Settler settler;
    private final Inbox inbox;
    private final Outbox outbox;
    private final ScheduledExecutorService thread;
    private final Listener listener;
    private final CreditControl control;
    /** Batches that were delivered and are not settled, by lease. */
    private final Map<ByteString, Batch> unsettled = new HashMap<>();

    /** From the sidecar's welcome; empty before it. */
    private ByteString id = ByteString.EMPTY;
    /** For how long the sidecar waits for this process after a connection was lost. */
    private long graceMs;
    /** Runs while the sidecar waits. */
    private @Nullable ScheduledFuture<?> graceTimer;
    /** Leases that were in hand when the connection was lost. */
    private Set<ByteString> held = Set.of();

    private ClientCallStreamObserver<ConsumeRequest> requests;
    private volatile boolean welcomed;
    private long welcomedAt;
    private Limits limits = DEFAULT_LIMITS;
    /** The credit that the sidecar was last given. */
    private int sentCredit;

    private boolean draining;
    private boolean sentDraining;
    /** End the stream once everything is sent. */
    private boolean halfClose;
    private boolean halfClosed;
    /** Cut the stream once everything is answered. */
    private boolean cutWhenAnswered;

    private boolean cut;
    /** There is no stream now. */
    private volatile boolean ended;

    private @Nullable Throwable failure;
    private @Nullable ScheduledFuture<?> timer;
    /** Called when all delivered batches are settled. */
    private Runnable onAllSettled = () -> {};
    private boolean warned;

    Session(
            Settings settings,
            Settler settler,
            Inbox inbox,
            Outbox outbox,
            ScheduledExecutorService thread,
            Listener listener) {
        this.settings = settings;
        this.settler = settler;
        this.inbox = inbox;
        this.outbox = outbox;
        this.thread = thread;
        this.listener = listener;
        this.control = new CreditControl(settings.credit(), settings.waitingNanos());
        this.sentCredit = control.credit();
    }

    void start(ConsumerServiceStub stub) {
        welcomed = false;
        ended = false;
        sentDraining = false;
        sentCredit = draining ? 0 : control.credit();
        stub.withExecutor(thread).consume(this);
        requests.onNext(settings.hello(sentCredit, id, held));
    }

    /** The latest stream got its welcome. */
    boolean welcomed() {
        return welcomed;
    }

    boolean connected() {
        return welcomed && !ended;
    }

    boolean streaming() {
        return !ended;
    }

    // Losing connections

    /** The connection was lost, and not ended by the sidecar. Returns whether the sidecar waits for another one. */
    boolean mayBeResumed() {
        if (welcomed) {
            held = outbox.unanswered();
            held.addAll(unsettled.keySet());
            if (graceMs > 0 && !sentDraining) {
                graceTimer = thread.schedule(this::onGraceOver, graceMs, TimeUnit.MILLISECONDS);
            }
        }
        return graceTimer != null && held.size() <= limits.getMaxRequestEntries();
    }

    /** Leases end with their session. */
    void over() {
        if (timer != null) {
            timer.cancel(false);
        }
        stopGraceTimer();
        loseBatches();
    }

    private void onGraceOver() {
        graceTimer = null;
        // While it connects, the sidecar has been told already what is held here: its welcome decides.
        if (ended) {
            id = ByteString.EMPTY;
            held = Set.of();
            loseBatches();
        }
    }

    private void stopGraceTimer() {
        if (graceTimer != null) {
            graceTimer.cancel(false);
            graceTimer = null;
        }
    }

    /** Drops waiting batches, and marks those in hand as lost. */
    private void loseBatches() {
        inbox.takeBack(null);
        unsettled.values().forEach(Batch::lose);
        unsettled.clear();
        outbox.onSessionEnd();
    }

    /** Milliseconds since the sidecar's welcome; 0 without one. */
    long lastedMs() {
        return welcomed ? TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - welcomedAt) : 0;
    }

    // Closing

    /** Asks for no further batch and releases those that no worker has taken. */
    void drain() {
        draining = true;
        release(inbox.takeBack(null));
        write();
    }

    /**
     * Settles what is in hand with {@code inHand}, and ends the stream once everything is sent. Null: cuts the stream
     * once everything is answered, so that the sidecar treats what is in hand as possibly processed.
     */
    void close(@Nullable Outcome inHand) {
        drain();
        if (inHand != null) {
            unsettled.values().forEach(batch -> batch.settleRest(inHand, true));
        }
        if (inHand() > 0) {
            cutWhenAnswered = true;
            cutIfAnswered();
        } else {
            halfClose = true;
        }
        write();
    }

    /** Calls this once all delivered batches are settled and the settlements are sent. */
    void whenSettled(Runnable call) {
        if (unsettled.isEmpty()) {
            call.run();
        } else {
            onAllSettled = call;
        }
    }

    private void cutIfAnswered() {
        if (cutWhenAnswered && outbox.answeredAll()) {
            cut("closing with batches in hand");
        }
    }

    /** Cancels the stream at once. */
    void cut(String why) {
        if (!ended && !cut) {
            cut = true;
            requests.cancel(why, null);
        }
    }

    // Writing

    /** Sends what is pending. */
    void write() {
        // Requests must fit the limits in the sidecar's welcome, so nothing is sent before it.
        if (!welcomed || ended || cut || halfClosed) {
            return;
        }
        for (ConsumeRequest request; (request = nextRequest()) != null; ) {
            requests.onNext(request);
        }
        if (unsettled.isEmpty()) {
            onAllSettled.run();
        }
        if (halfClose) {
            halfClosed = true;
            requests.onCompleted();
        }
    }

    private @Nullable ConsumeRequest nextRequest() {
        // Each in its own request and before released batches, which would otherwise be sent to this process again.
        if (draining && !sentDraining) {
            sentDraining = true;
            return ConsumeRequest.newBuilder().setDraining(true).build();
        }
        if (sentCredit != control.credit() && !draining) {
            sentCredit = control.credit();
            return ConsumeRequest.newBuilder().setCredit(settings.asCredit(sentCredit)).build();
        }
        return outbox.nextRequest(limits, this::onSettled);
    }

    private void onSettled(Batch batch) {
        if (unsettled.remove(batch.lease()) != null && batch.takenAt != 0) {
            control.settled(System.nanoTime() - batch.takenAt);
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
            cut("client error");
        }
    }

    private void receive(ConsumeResponse response) {
        if (response.hasWelcome()) {
            welcome(response.getWelcome());
        }
        if (response.getResultsCount() > 0) {
            outbox.onResults(response.getResultsList());
            cutIfAnswered();
        }
        if (response.getExtendedCount() > 0) {
            outbox.onExtended(response.getExtendedList());
        }
        for (Notice notice : response.getNoticesList()) {
            onNotice(notice);
        }
        if (response.getBatchesCount() > 0) {
            receiveBatches(response.getBatchesList());
        }
        write();
    }

    private void welcome(Welcome welcome) {
        Limits told = welcome.getLimits();
        limits = told.getMaxRequestBytes() > 0 && told.getMaxRequestEntries() > 0 ? told : DEFAULT_LIMITS;
        stopGraceTimer();
        if (!id.isEmpty() && !id.equals(welcome.getSession())) {
            // The sidecar was restarted, or has waited for long enough.
            loseBatches();
        }
        id = welcome.getSession();
        graceMs = welcome.getResumeMs();
        welcomedAt = System.nanoTime();
        welcomed = true;
        if (graceMs > 0) {
            // Says that the welcome is here: only then the sidecar waits for this process.
            requests.onNext(ConsumeRequest.getDefaultInstance());
        }
        listener.onWelcome(welcome);
    }

    private void receiveBatches(List<io.offramp.v1.Batch> messages) {
        long now = System.nanoTime();
        List<Batch> received = new ArrayList<>(messages.size());
        for (io.offramp.v1.Batch message : messages) {
            Batch batch = new Batch(message, settler, now);
            unsettled.put(batch.lease(), batch);
            received.add(batch);
        }
        if (draining) {
            // They were sent before the sidecar received our `draining`.
            release(received);
            return;
        }
        received.forEach(inbox::put);
        watchPatience();
    }

    private void onNotice(Notice notice) {
        String what;
        switch (notice.getKind()) {
            case NOTICE_KIND_REVOKED -> {
                what = "lanes move to another sidecar";
                if (notice.getSettleForMs() == 0) {
                    for (ByteString lease : notice.getLeasesList()) {
                        Batch batch = unsettled.get(lease);
                        if (batch != null) {
                            batch.lose();
                        }
                    }
                }
                // Those that no worker has taken are not started any more.
                release(inbox.takeBack(new HashSet<>(notice.getLeasesList())));
            }
            case NOTICE_KIND_DRAINING -> what = "the sidecar is stopping; batches in hand can still be settled";
            case NOTICE_KIND_PAUSED -> what = "the subscription is paused";
            case NOTICE_KIND_RESUMED -> what = "the subscription is resumed";
            default -> {
                return;
            }
        }
        String detail = notice.getDetail();
        double left = notice.getSettleForMs() / 1e3;
        log.info(
                "{}: {}{}{}",
                settings.subscription(),
                what,
                left > 0 ? String.format("; %.1f seconds are left to settle", left) : "",
                detail.isEmpty() ? "" : ": " + detail);
    }

    @Override
    public void onError(Throwable error) {
        boolean cutByUs = cut && failure == null;
        end(failure != null ? failure : cutByUs ? null : error);
    }

    @Override
    public void onCompleted() {
        end(failure);
    }

    private void end(@Nullable Throwable error) {
        if (ended) {
            return;
        }
        ended = true;
        outbox.onDisconnect();
        listener.onEnd(this, error);
    }

    // Credit

    /** A worker waits for a batch and there is none. */
    void onWait() {
        // Enough is asked for already, unless the credit that was sent last is about to change.
        if (unsettled.size() < sentCredit && sentCredit == control.credit() && sentCredit == control.limit) {
            return;
        }
        int inHand = inHand();
        control.grow(inHand, inbox.waiting());
        if (control.credit() != sentCredit) {
            write();
        }
        if (inHand >= control.limit && !warned) {
            warned = true;
            log.warn(
                    "{}: {} batches are in hand and unsettled, which is the whole credit: no further batch is "
                            + "delivered until one of them is settled",
                    settings.subscription(),
                    inHand);
        }
    }

    private int inHand() {
        int count = 0;
        for (Batch batch : unsettled.values()) {
            if (!batch.settled()) {
                count++;
            }
        }
        return count - inbox.size();
    }

    /** Schedules a check of the longest waiting batch. */
    private void watchPatience() {
        Batch oldest = inbox.oldest();
        if (timer == null && oldest != null) {
            long left = oldest.receivedAt + control.patienceNanos - System.nanoTime();
            timer = thread.schedule(this::checkPatience, Math.max(left, 0), TimeUnit.NANOSECONDS);
        }
    }

    private void checkPatience() {
        timer = null;
        Batch oldest = inbox.oldest();
        if (oldest != null && System.nanoTime() - oldest.receivedAt >= control.patienceNanos) {
            int inHand = inHand();
            List<Batch> waited = inbox.takeBack(null);
            control.shrink(inHand);
            release(waited);
            log.debug("{}: released {} batches that no worker took", settings.subscription(), waited.size());
        }
        watchPatience();
    }

    private static void release(List<Batch> batches) {
        for (Batch batch : batches) {
            batch.settleRest(Outcome.RELEASE, true);
        }
    }
}
