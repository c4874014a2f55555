package io.offramp;

/**
 * How many batches to ask the sidecar for. Pure: time comes in as an argument.
 *
 * <p>Asks for more batches than the workers have in hand, as long as they keep up: a worker that finishes a batch finds
 * the next one waiting and need not wait for a round trip. But no other process can take a batch that waits here, so it
 * must not wait long. When one has waited longer than {@code patience}, the workers are slow and prefetching gains
 * nothing: the credit shrinks to what they have in hand. It is restored once they are fast again.
 */
final class CreditControl {
    final int limit;
    final long patienceNanos;
    private int credit;
    private int fastInARow;

    CreditControl(int limit, long patienceNanos) {
        this.limit = limit;
        this.patienceNanos = patienceNanos;
        this.credit = limit;
    }

    /** Batches that may be unsettled at a time. */
    int credit() {
        return credit;
    }

    /** A batch has waited longer than {@code patience}; all waiting batches are released. */
    void shrink(int inHand) {
        credit = Math.min(inHand, limit);
        fastInARow = 0;
    }

    /** {@code waiting} workers want a batch and there is none. */
    void grow(int inHand, int waiting) {
        credit = Math.max(credit, Math.min(inHand + waiting, limit));
    }

    /** A worker settled a batch this long after taking it. */
    void settled(long heldNanos) {
        if (credit == limit) {
            return;
        }
        fastInARow = heldNanos < patienceNanos / 2 ? fastInARow + 1 : 0;
        if (fastInARow >= limit) {
            credit = limit;
            fastInARow = 0;
        }
    }
}
