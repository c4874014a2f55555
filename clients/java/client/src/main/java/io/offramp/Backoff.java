package io.offramp;

import java.util.random.RandomGenerator;

/**
 * Growing pauses between attempts to reach the sidecar, each drawn from the upper half of its range, so that clients do
 * not all reconnect at once. Pure.
 */
final class Backoff {
    /** Short: a sidecar that restarts in place is back soon. */
    static final long FIRST_MS = 50;
    /** Not long: the sidecar is close by, so an attempt costs next to nothing. */
    static final long LONGEST_MS = 2_000;

    private final RandomGenerator random;
    private long most = FIRST_MS;

    Backoff(RandomGenerator random) {
        this.random = random;
    }

    long nextMs() {
        long range = most;
        most = Math.min(LONGEST_MS, range * 2);
        return random.nextLong(range / 2, range + 1);
    }

    void reset() {
        most = FIRST_MS;
    }
}
