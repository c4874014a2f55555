package example.spring;

import io.offramp.Batch;
import io.offramp.Offramp;
import io.offramp.Worker;
import java.time.Duration;
import org.springframework.context.SmartLifecycle;
import org.springframework.stereotype.Component;

/**
 * A worker that starts when all beans exist, and drains before any of them is closed.
 *
 * <p>Spring stops it on SIGTERM. It does not use {@code closeOnShutdown}, since Spring has its own shutdown hook.
 */
@Component
public final class OrdersWorker implements SmartLifecycle {
    private final Offramp offramp;
    private final Orders orders;
    private volatile Worker worker;

    public OrdersWorker(Offramp offramp, Orders orders) {
        this.offramp = offramp;
        this.orders = orders;
    }

    @Override
    public void start() {
        worker = offramp.worker("orders")
                .workers(8)
                // A little less than Spring gives a phase (spring.lifecycle.timeout-per-shutdown-phase: 30 s).
                .drainTimeout(Duration.ofSeconds(25))
                .handler(this::handle)
                .start();
    }

    private void handle(Batch batch) {
        batch.forEach(record -> orders.save(record.id(), record.valueAsText()));
    }

    /** Called on a thread for each phase. Returns when the batches in hand are settled. */
    @Override
    public void stop() {
        worker.close();
        worker = null;
    }

    /** Also false after a refusal: use it for a health check. */
    @Override
    public boolean isRunning() {
        Worker now = worker;
        return now != null && now.running();
    }

    /** The highest phase is stopped first: before the web servers and pools that the handler may need. */
    @Override
    public int getPhase() {
        return Integer.MAX_VALUE;
    }
}
