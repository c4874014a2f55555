package io.offramp;

import com.google.protobuf.ByteString;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** A message to publish. Immutable: each {@code with} method returns a new one. */
public final class Message {
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

    io.offramp.v1.Message message() {
        return message;
    }

    private static byte @Nullable [] bytes(@Nullable String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }
}
