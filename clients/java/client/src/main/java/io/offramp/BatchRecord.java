package io.offramp;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;

/**
 * One record of a batch: a view of one broker message, made when it is asked for and cheap to make again.
 *
 * <p>{@code ack}, {@code nack}, {@code reject}, {@code release} and {@code overloaded} mark this record. Nothing travels
 * before the batch is settled or flushed, and until then a later mark replaces an earlier one. Records without a mark
 * fare as their batch does.
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
    public byte[] key() {
        return message.hasKey() ? message.getKey().toByteArray() : null;
    }

    /** Null: a null value (a tombstone on a compacted topic), which is not the same as an empty one. A copy. */
    public byte[] value() {
        return message.hasValue() ? message.getValue().toByteArray() : null;
    }

    /** The key as UTF-8; null if there is none. */
    public String keyAsText() {
        return message.hasKey() ? message.getKey().toStringUtf8() : null;
    }

    /** The value as UTF-8; null if there is none. */
    public String valueAsText() {
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
    public Header header(String name) {
        for (int place = message.getHeadersCount() - 1; place >= 0; place--) {
            if (message.getHeaders(place).getName().equals(name)) {
                return read(message.getHeaders(place));
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

    /** The stream within the topic: a Kafka partition, for one. */
    public int lane() {
        return message.getLane();
    }

    /** The place in the lane: a Kafka offset, for one. */
    public long position() {
        return message.getPosition();
    }

    /** {@code topic/lane/position}: the same at every delivery, and in dead letters. Good for telling duplicates. */
    public String id() {
        return batch.topic() + "/" + message.getLane() + "/" + message.getPosition();
    }

    /** As the broker has it; null if it has none. */
    public Instant timestamp() {
        return message.getTimestampMs() == 0 ? null : Instant.ofEpochMilli(message.getTimestampMs());
    }

    /** 1 for the first delivery, one more after each that failed. */
    public int attempt() {
        io.offramp.v1.Redelivery redelivery = batch.redelivery(index);
        return redelivery == null ? 1 : Math.max(redelivery.getAttempt(), 1);
    }

    /** The outcome of an earlier delivery is not known: it may have been processed already. */
    public boolean possiblyProcessed() {
        io.offramp.v1.Redelivery redelivery = batch.redelivery(index);
        return redelivery != null && redelivery.getPossiblyProcessed();
    }

    /** Its place in the batch. */
    public int index() {
        return index;
    }

    public Batch batch() {
        return batch;
    }

    /** The record as it came, for what is not here (the broker's own {@code ref}) and for values without a copy. */
    public io.offramp.v1.Record message() {
        return message;
    }

    /** Done. */
    public void ack() {
        batch.mark(index, Verdict.ACK);
    }

    /** Failed: try again after the subscription's backoff. Counts as an attempt. */
    public void nack(String reason) {
        batch.mark(index, Verdict.nack(reason, null));
    }

    /** Failed: try again after this time. Counts as an attempt. */
    public void nack(String reason, Duration retryAfter) {
        batch.mark(index, Verdict.nack(reason, retryAfter));
    }

    /** Failed with this exception: try again after the subscription's backoff. Counts as an attempt. */
    public void nack(Throwable reason) {
        batch.mark(index, Verdict.nack(Verdict.describe(reason), null));
    }

    /** Will never succeed: dead-letter it now. */
    public void reject(String reason) {
        batch.mark(index, Verdict.reject(reason));
    }

    /** Will never succeed, as this exception shows: dead-letter it now. */
    public void reject(Throwable reason) {
        batch.mark(index, Verdict.reject(Verdict.describe(reason)));
    }

    /** Not tried: deliver it again at once. Does not count. */
    public void release() {
        batch.mark(index, Verdict.RELEASE);
    }

    /** What is behind the handler asks for less: deliver it again later. Does not count. */
    public void overloaded(String reason) {
        batch.mark(index, Verdict.overloaded(reason, null));
    }

    /** What is behind the handler asks for less: deliver it again after this time. Does not count. */
    public void overloaded(String reason, Duration retryAfter) {
        batch.mark(index, Verdict.overloaded(reason, retryAfter));
    }

    @Override
    public String toString() {
        return "record " + id() + " (attempt " + attempt() + ")";
    }
}
