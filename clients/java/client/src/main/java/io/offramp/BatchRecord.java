package io.offramp;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.format.DateTimeParseException;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * One record of a batch: a view of one broker message, created on access and cheap to create again.
 *
 * <p>{@code ack}, {@code nack}, {@code reject}, {@code release} and {@code overloaded} mark this record. Nothing is
 * sent before the batch is settled or flushed, and until then a later mark replaces an earlier one. Records without a
 * mark get the outcome of their batch.
 */
public final class BatchRecord {
    private final Batch batch;
    private final int index;
    private final io.offramp.v1.Record message;

    BatchRecord(Batch batch, int index, io.offramp.v1.Record message) {
        this.batch = batch;
        this.index = index;
        this.message = message;
    }

    /** Null: the message has no key, which is not the same as an empty one. A copy. */
    public byte @Nullable [] key() {
        return message.hasKey() ? message.getKey().toByteArray() : null;
    }

    /** Null: a null value (a tombstone on a compacted topic), which is not the same as an empty one. A copy. */
    public byte @Nullable [] value() {
        return message.hasValue() ? message.getValue().toByteArray() : null;
    }

    /** The key as UTF-8; null if there is none. */
    public @Nullable String keyAsText() {
        return message.hasKey() ? message.getKey().toStringUtf8() : null;
    }

    /** The value as UTF-8; null if there is none. */
    public @Nullable String valueAsText() {
        return message.hasValue() ? message.getValue().toStringUtf8() : null;
    }

    /** In the order of the message; names may repeat. */
    public List<Header> headers() {
        List<Header> headers = new ArrayList<>(message.getHeadersCount());
        for (io.offramp.v1.Header header : message.getHeadersList()) {
            headers.add(read(header));
        }
        return headers;
    }

    /** The last header of this name; null if there is none. */
    public @Nullable Header header(String name) {
        for (int index = message.getHeadersCount() - 1; index >= 0; index--) {
            if (message.getHeaders(index).getName().equals(name)) {
                return read(message.getHeaders(index));
            }
        }
        return null;
    }

    private static Header read(io.offramp.v1.Header header) {
        return new Header(header.getName(), header.hasValue() ? header.getValue().toByteArray() : null);
    }

    public String topic() {
        return batch.topic();
    }

    /** The stream within the topic, for example a Kafka partition. */
    public int lane() {
        return message.getLane();
    }

    /** The place in the lane, for example a Kafka offset. */
    public long position() {
        return message.getPosition();
    }

    /**
     * The broker's own identity of the record, the same at every delivery and in dead letters: an idempotency key.
     * Opaque.
     */
    public String id() {
        return batch.idOf(message.getLane(), message.getPosition());
    }

    /** The broker's timestamp; null if there is none. */
    public @Nullable Instant timestamp() {
        return message.getTimestampMs() == 0 ? null : Instant.ofEpochMilli(message.getTimestampMs());
    }

    /** When what it tells of happened: the header {@code ce_time}; null if there is none. */
    public @Nullable Instant eventTime() {
        String text = text(Message.EVENT_TIME);
        try {
            return text == null ? null : OffsetDateTime.parse(text).toInstant();
        } catch (DateTimeParseException wrong) {
            return null;
        }
    }

    /** How the value is encoded: the header {@code content-type}; null if there is none. */
    public @Nullable String contentType() {
        return text(Message.CONTENT_TYPE);
    }

    private @Nullable String text(String name) {
        Header header = header(name);
        return header == null || header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8);
    }

    /** 1 for the first delivery, one more after each failed one. */
    public int attempt() {
        io.offramp.v1.Redelivery redelivery = batch.redelivery(index);
        return redelivery == null ? 1 : Math.max(redelivery.getAttempt(), 1);
    }

    /** Whether the outcome of an earlier delivery is unknown: the record may have been processed already. */
    public boolean possiblyProcessed() {
        io.offramp.v1.Redelivery redelivery = batch.redelivery(index);
        return redelivery != null && redelivery.getPossiblyProcessed();
    }

    /** Its index in the batch. */
    public int index() {
        return index;
    }

    public Batch batch() {
        return batch;
    }

    /** The record as it was received, for fields that have no method here ({@code ref}) and values without a copy. */
    public io.offramp.v1.Record message() {
        return message;
    }

    /** Processed. */
    public void ack() {
        batch.mark(index, Outcome.ACK);
    }

    /** Failed: retry after the subscription's backoff. Counts as an attempt. */
    public void nack(@Nullable String reason) {
        batch.mark(index, Outcome.nack(reason, null));
    }

    /** Failed: retry after this time. Counts as an attempt. */
    public void nack(@Nullable String reason, Duration retryAfter) {
        batch.mark(index, Outcome.nack(reason, retryAfter));
    }

    /** Failed with this exception: retry after the subscription's backoff. Counts as an attempt. */
    public void nack(Throwable reason) {
        batch.mark(index, Outcome.nack(Outcome.describe(reason), null));
    }

    /** Never succeeds: dead-letter it now. */
    public void reject(@Nullable String reason) {
        batch.mark(index, Outcome.reject(reason));
    }

    /** Never succeeds, with this exception: dead-letter it now. */
    public void reject(Throwable reason) {
        batch.mark(index, Outcome.reject(Outcome.describe(reason)));
    }

    /** Not tried: deliver it again at once. Does not count as an attempt. */
    public void release() {
        batch.mark(index, Outcome.RELEASE);
    }

    /** What the handler depends on is overloaded: deliver it again later. Does not count as an attempt. */
    public void overloaded(@Nullable String reason) {
        batch.mark(index, Outcome.overloaded(reason, null));
    }

    /** What the handler depends on is overloaded: deliver it again after this time. Does not count as an attempt. */
    public void overloaded(@Nullable String reason, Duration retryAfter) {
        batch.mark(index, Outcome.overloaded(reason, retryAfter));
    }

    @Override
    public String toString() {
        return "record " + id() + " (attempt " + attempt() + ")";
    }
}
