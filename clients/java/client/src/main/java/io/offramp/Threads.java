package io.offramp;

import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicInteger;

/** Named daemon threads: a handler that never ends must not keep the process from ending. */
final class Threads {
    private Threads() {}

    static ThreadFactory daemons(String name) {
        AtomicInteger count = new AtomicInteger();
        return task -> {
            Thread thread = new Thread(task, name + "-" + count.getAndIncrement());
            thread.setDaemon(true);
            return thread;
        };
    }
}
