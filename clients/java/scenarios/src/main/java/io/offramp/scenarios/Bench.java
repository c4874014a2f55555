package io.offramp.scenarios;

import com.sun.management.OperatingSystemMXBean;
import io.offramp.BatchRecord;
import io.offramp.Offramp;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Consumes with a handler that only reads each value: {@code Bench <subscription> <records> [workers]}.
 *
 * <p>Prints one line of JSON. Measures from the first batch to the result of the last settlement.
 */
public final class Bench {
    private Bench() {}

    public static void main(String[] args) throws InterruptedException {
        String subscription = args[0];
        long records = Long.parseLong(args[1]);
        int workers = args.length > 2 ? Integer.parseInt(args[2]) : 1;
        OperatingSystemMXBean system = ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
        AtomicLong startedAt = new AtomicLong();
        AtomicLong cpuBefore = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        AtomicLong settled = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        try (Offramp offramp = Offramp.connect()) {
            offramp.worker(subscription)
                    .workers(workers)
                    .onResult((batch, result) -> {
                        if (result.settled() && settled.addAndGet(batch.size()) >= records) {
                            done.countDown();
                        }
                    })
                    .handler(batch -> {
                        if (startedAt.compareAndSet(0, System.nanoTime())) {
                            cpuBefore.set(system.getProcessCpuTime());
                        }
                        long seen = 0;
                        for (BatchRecord record : batch) {
                            seen += record.value().length;
                        }
                        bytes.addAndGet(seen);
                    })
                    .start();
            done.await();
            double seconds = (System.nanoTime() - startedAt.get()) / 1e9;
            double cpu = (system.getProcessCpuTime() - cpuBefore.get()) / 1e9;
            System.out.printf(
                    Locale.ROOT,
                    "{\"records\": %d, \"bytes\": %d, \"seconds\": %.3f, \"records_per_second\": %.0f, "
                            + "\"cpu_seconds\": %.3f}%n",
                    settled.get(),
                    bytes.get(),
                    seconds,
                    settled.get() / seconds,
                    cpu);
        }
    }
}
