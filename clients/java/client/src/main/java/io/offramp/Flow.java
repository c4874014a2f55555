package io.offramp;

/**
 * How many batches to ask for. Pure: time comes in.
 *
 * <p>Keeps a little more at hand than the handlers work on, as long as they keep up: whoever finishes a batch finds the
 * next one waiting, instead of idling for a round trip. But a batch that waits here is one that no other process can
 * take, so waiting must be short: when one has waited longer than {@code patience}, the handlers are slow, prefetching
 * gains nothing, and only as much is asked for as they have in hand. Once they are fast again, so is this.
 */
final class Flow {
    final int credit;
    final long patienceNanos;
    private int ask;
    private int fast;

    Flow(int credit, long patienceNanos) {
        this.credit = credit;
        this.patienceNanos = patienceNanos;
        this.ask = credit;
    }

    /** Batches that may be unsettled at a time. */
    int ask() {
        return ask;
    }

    /** A batch has waited longer than {@code patience}, and all that wait are given back. */
    void stalled(int inHand) {
        ask = Math.min(inHand, credit);
        fast = 0;
    }

    /** So many workers wait for a batch, and none is there. */
    void wanted(int inHand, int waiting) {
        ask = Math.max(ask, Math.min(inHand + waiting, credit));
    }

    /** A worker settled a batch that it had for so long. */
    void settled(long heldNanos) {
        if (ask == credit) {
            return;
        }
        fast = heldNanos < patienceNanos / 2 ? fast + 1 : 0;
        if (fast >= credit) {
            ask = credit;
            fast = 0;
        }
    }
}
