package io.offramp;

import com.google.protobuf.ByteString;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** A message to publish. Immutable: each {@code with} method returns a new one. */
public final class Message {
    static final String EVENT_TIME = "ce_time";
    static final String CONTENT_TYPE = "content-type";

    private final io.offramp.v1.Message message;

    private Message(io.offramp.v1.Message message) {
        this.message = message;
    }

    /** Null is no value (a tombstone), which is not the same as an empty one. */
    public static Message of(byte @Nullable [] value) {
        io.offramp.v1.Message.Builder message = io.offramp.v1.Message.newBuilder();
        if (value != null) {
            message.setValue(ByteString.copyFrom(value));
        }
        return new Message(message.build());
    }

    /** The text as UTF-8. */
    public static Message of(@Nullable String value) {
        return of(bytes(value));
    }

    /** A message without a value. */
    public static Message tombstone() {
        return of((byte @Nullable []) null);
    }

    public Message withKey(byte[] key) {
        return new Message(message.toBuilder().setKey(ByteString.copyFrom(key)).build());
    }

    public Message withKey(String key) {
        return withKey(Objects.requireNonNull(key, "key").getBytes(StandardCharsets.UTF_8));
    }

    /** With one more header; names may repeat. A null value is a header without a value. */
    public Message withHeader(String name, byte @Nullable [] value) {
        io.offramp.v1.Header.Builder header = io.offramp.v1.Header.newBuilder().setName(name);
        if (value != null) {
            header.setValue(ByteString.copyFrom(value));
        }
        return new Message(message.toBuilder().addHeaders(header).build());
    }

    public Message withHeader(String name, @Nullable String value) {
        return withHeader(name, bytes(value));
    }

    public Message withHeaders(Iterable<Header> headers) {
        Message all = this;
        for (Header header : headers) {
            all = all.withHeader(header.name(), header.value());
        }
        return all;
    }

    /** Default: by the hash of the key, or round-robin without a key. */
    public Message withLane(int lane) {
        return new Message(message.toBuilder().setLane(lane).build());
    }

    /** Default: now. */
    public Message withTimestamp(Instant timestamp) {
        return new Message(message.toBuilder().setTimestampMs(timestamp.toEpochMilli()).build());
    }

    /**
     * The broker delivers it no earlier than so long from now; {@code Refused} where it cannot wait (Pulsar with shared
     * subscriptions can).
     */
    public Message withDeliverAfter(Duration delay) {
        return new Message(message.toBuilder().setDeliverAfterMs(delay.toMillis()).build());
    }

    /**
     * Of several messages with this id the topic gets the first; {@code Refused} where the broker cannot tell (the
     * embedded broker can).
     */
    public Message withDeduplicationId(String id) {
        return new Message(message.toBuilder().setDeduplicationId(id).build());
    }

    /** With the header {@code ce_time}, as in CloudEvents: when what it tells of happened. */
    public Message withEventTime(Instant time) {
        return withHeader(EVENT_TIME, time.toString());
    }

    /** With the header {@code content-type}: how the value is encoded, such as {@code application/json}. */
    public Message withContentType(String type) {
        return withHeader(CONTENT_TYPE, type);
    }

    io.offramp.v1.Message message() {
        return message;
    }

    private static byte @Nullable [] bytes(@Nullable String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }
}
