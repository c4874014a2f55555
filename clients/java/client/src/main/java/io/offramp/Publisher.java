package io.offramp;

import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import io.grpc.stub.StreamObserver;
import io.offramp.v1.GetLimitsRequest;
import io.offramp.v1.GetLimitsResponse;
import io.offramp.v1.PublishRequest;
import io.offramp.v1.PublishResponse;
import io.offramp.v1.PublishServiceGrpc;
import io.offramp.v1.PublishStatus;
import io.offramp.v1.Published;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * Publishes to the broker of a subscription, or to a broker by its name. For any number of threads.
 *
 * <p>Created by {@link Offramp#publisher}. Every call waits for the sidecar if it is not there, and completes when the
 * broker has the messages durably. It fails with {@link OfframpException.Refused} if a retry cannot help, and with
 * {@link OfframpException.Unavailable} if it did not succeed in time: then some messages may have been published, and
 * publishing again may duplicate them but loses nothing.
 */
public final class Publisher implements AutoCloseable {
    /** Between attempts to connect. Short: the sidecar is close by, so an attempt costs next to nothing. */
    private static final long RECONNECT_INTERVAL_MS = 250;
    /** What any sidecar accepts in one request. */
    private static final int SMALL_BYTES = 64 << 10;

    private static final int SMALL_MESSAGES = 1_000;

    private final Transport transport;
    private final ManagedChannel channel;
    private final PublishServiceGrpc.PublishServiceStub stub;
    private final PublishRequest target;
    private final Duration timeout;
    private final Runnable onEnd;
    /** What the sidecar accepts in one request, once a large one was to be sent; null: not known. */
    private volatile @Nullable GetLimitsResponse limits;

    private Publisher(Builder builder) {
        this.transport = builder.offramp.transport();
        this.channel = transport.open(Protocol.DEFAULT_MESSAGE_BYTES);
        this.stub = PublishServiceGrpc.newStub(channel).withWaitForReady();
        this.target = builder.target;
        this.timeout = builder.timeout;
        this.onEnd = builder.offramp.register(this);
        keepReconnecting();
    }

    /** Publishes one message. Returns where it was published. Blocks. */
    public Place publish(String topic, Message message) {
        return publish(topic, List.of(message)).get(0);
    }

    /**
     * Publishes messages to one topic in one call. Returns where they were published, in their order. Blocks. Throws
     * {@link OfframpException.PartlyPublished} if only some are published.
     */
    public List<Place> publish(String topic, List<Message> messages) {
        if (transport.isOwnThread()) {
            throw new IllegalStateException(
                    "publish blocks, and was called on the thread that receives its answer: use publishAsync here");
        }
        try {
            return publishAsync(topic, messages).join();
        } catch (CompletionException error) {
            // So that the stack trace also shows the caller.
            if (error.getCause() instanceof OfframpException cause) {
                cause.addSuppressed(new Exception("published from here"));
                throw cause;
            }
            throw error;
        }
    }

    /**
     * Like {@link #publish}, without blocking. Stages that depend on the result run on the thread that talks to the
     * sidecar, unless they are {@code async}: they must not block.
     */
    public CompletableFuture<List<Place>> publishAsync(String topic, List<Message> messages) {
        if (channel.isShutdown()) {
            throw new OfframpException.Closed("the publisher is closed");
        }
        PublishRequest.Builder request = target.toBuilder().setTopic(topic);
        for (Message message : messages) {
            request.addMessages(message.message());
        }
        PublishRequest complete = request.build();
        PublishServiceGrpc.PublishServiceStub call =
                stub.withDeadlineAfter(timeout.toMillis(), TimeUnit.MILLISECONDS);
        boolean small =
                complete.getMessagesCount() <= SMALL_MESSAGES && complete.getSerializedSize() <= SMALL_BYTES;
        GetLimitsResponse known = limits;
        if (small || known != null) {
            return send(call, complete, known);
        }
        Answer<GetLimitsResponse> asked = new Answer<>();
        GetLimitsRequest.Builder question = GetLimitsRequest.newBuilder();
        if (target.hasSubscription()) {
            question.setSubscription(target.getSubscription());
        } else {
            question.setBroker(target.getBroker());
        }
        call.getLimits(question.build(), asked);
        return asked.future.thenCompose(told -> {
            limits = told;
            return send(call, complete, told);
        });
    }

    /** {@code known} may be null for a small request. */
    private CompletableFuture<List<Place>> send(
            PublishServiceGrpc.PublishServiceStub call, PublishRequest request, GetLimitsResponse known) {
        if (known != null) {
            OfframpException.InvalidRequest tooLarge = tooLarge(request, known);
            if (tooLarge != null) {
                return CompletableFuture.failedFuture(tooLarge);
            }
        }
        Answer<PublishResponse> answer = new Answer<>();
        call.publish(request, answer);
        return answer.future.thenApply(this::places);
    }

    /** Throws {@link OfframpException.PartlyPublished}, or the exception of a single message. */
    private List<Place> places(PublishResponse response) {
        List<OfframpException.PartlyPublished.Result> results =
                response.getPublishedList().stream().map(this::result).toList();
        List<OfframpException> failed = results.stream()
                .map(OfframpException.PartlyPublished.Result::error)
                .filter(Objects::nonNull)
                .toList();
        if (failed.isEmpty()) {
            return results.stream()
                    .map(OfframpException.PartlyPublished.Result::place)
                    .toList();
        }
        if (results.size() == 1) {
            throw failed.get(0);
        }
        throw new OfframpException.PartlyPublished(
                failed.size() + " of " + results.size() + " messages are not published, or may not be; the first: "
                        + failed.get(0).getMessage(),
                results);
    }

    private OfframpException.PartlyPublished.Result result(Published one) {
        if (one.getStatus() == PublishStatus.PUBLISH_STATUS_PUBLISHED) {
            return new OfframpException.PartlyPublished.Result(new Place(one.getLane(), one.getPosition()), null);
        }
        String detail = one.getDetail().isEmpty() ? "the message is not published" : one.getDetail();
        return new OfframpException.PartlyPublished.Result(
                null, Failure.ofMessage(one, transport.address() + ": " + detail));
    }

    /** The exception for a request that the sidecar would refuse; else null. */
    private OfframpException.@Nullable InvalidRequest tooLarge(PublishRequest request, GetLimitsResponse known) {
        String what = null;
        if (request.getSerializedSize() > known.getMaxRequestBytes()) {
            what = request.getSerializedSize() + " bytes, and the sidecar accepts " + known.getMaxRequestBytes()
                    + " (listen.max_request_bytes)";
        } else if (request.getMessagesCount() > known.getMaxMessages()) {
            what = request.getMessagesCount() + " messages, and the sidecar accepts " + known.getMaxMessages();
        }
        return what == null
                ? null
                : new OfframpException.InvalidRequest(
                        transport.address() + ": the request has " + what
                                + ": publish fewer or smaller messages at a time",
                        null);
    }

    /** Pending calls fail. */
    @Override
    public void close() {
        channel.shutdownNow();
        onEnd.run();
    }

    /** Reconnects at short intervals: gRPC's own backoff grows to two minutes. */
    private void keepReconnecting() {
        ConnectivityState state = channel.getState(false);
        if (state == ConnectivityState.SHUTDOWN) {
            return;
        }
        if (state == ConnectivityState.TRANSIENT_FAILURE) {
            transport.timer().schedule(channel::resetConnectBackoff, RECONNECT_INTERVAL_MS, TimeUnit.MILLISECONDS);
        }
        channel.notifyWhenStateChanged(state, this::keepReconnecting);
    }

    private OfframpException failure(Throwable error) {
        // The next call may reach another sidecar, with other limits.
        limits = null;
        String address = transport.address().toString();
        Failure failure = Failure.of(error);
        OfframpException refusal = failure.refusal(error, address);
        if (refusal != null) {
            return refusal;
        }
        String text = address + ": " + OfframpException.describe(failure.status());
        if (Access.TokenFileError.causes(error)) {
            return new OfframpException.Unavailable(text, error);
        }
        OfframpException unavailable = failure.reason().equals("BROKER_FULL")
                ? new OfframpException.OutOfRoom(text, error)
                : new OfframpException.Unavailable(text + "; some of it may have been published", error);
        unavailable.reason = failure.reason();
        return unavailable;
    }

    private final class Answer<T> implements StreamObserver<T> {
        final CompletableFuture<T> future = new CompletableFuture<>();

        @Override
        public void onNext(T response) {
            future.complete(response);
        }

        @Override
        public void onError(Throwable error) {
            future.completeExceptionally(failure(error));
        }

        @Override
        public void onCompleted() {}
    }

    /** The options of a publisher. */
    public static final class Builder {
        private final Offramp offramp;
        private PublishRequest target = PublishRequest.getDefaultInstance();
        private Duration timeout = Duration.ofSeconds(30);

        Builder(Offramp offramp) {
            this.offramp = offramp;
        }

        /** To the broker of this subscription. */
        public Builder subscription(String name) {
            target = PublishRequest.newBuilder().setSubscription(name).build();
            return this;
        }

        /** To the broker of this name, instead of a subscription's. */
        public Builder broker(String name) {
            target = PublishRequest.newBuilder().setBroker(name).build();
            return this;
        }

        /** How long a call may take, waiting for the sidecar included. Default: 30 seconds. */
        public Builder timeout(Duration timeout) {
            this.timeout = Objects.requireNonNull(timeout, "timeout");
            return this;
        }

        public Publisher open() {
            if (target.getTargetCase() == PublishRequest.TargetCase.TARGET_NOT_SET) {
                throw new IllegalArgumentException(
                        "either a subscription (to publish to its broker) or a broker must be given");
            }
            return new Publisher(this);
        }
    }
}
