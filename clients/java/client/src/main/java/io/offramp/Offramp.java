package io.offramp;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The client of one sidecar, which creates workers, consumers and publishers.
 *
 * <p>Closing it closes all of them. A process needs only one, for any number of subscriptions.
 */
public final class Offramp implements AutoCloseable {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");

    private final Transport transport;
    private final Set<AutoCloseable> open = new LinkedHashSet<>();
    private boolean closed;
    private @Nullable Thread hook;

    private Offramp(Address address, Access access) {
        this.transport = new Transport(address, access);
    }

    /** To the sidecar at the environment's OFFRAMP_ADDRESS, or else at {@code unix:/run/offramp/offramp.sock}. */
    public static Offramp connect() {
        return connect(null);
    }

    /**
     * To the sidecar at this address: {@code unix:/path}, {@code /path} or {@code host:port}; null is the default. Does
     * not wait for it: workers, consumers and publishers do.
     */
    public static Offramp connect(@Nullable String address) {
        return connect(address, Access.fromEnvironment());
    }

    /** Like {@link #connect(String)}, with a token, a certificate, or authorities to trust. */
    public static Offramp connect(@Nullable String address, Access access) {
        return new Offramp(Address.parse(address), access);
    }

    /** A worker of a subscription: set its handler, and start it. */
    public Worker.Builder worker(String subscription) {
        return new Worker.Builder(this, subscription);
    }

    /** A consumer of a subscription, to iterate over. */
    public Consumer.Builder consumer(String subscription) {
        return new Consumer.Builder(this, subscription);
    }

    /** A publisher, which sends messages to a broker. */
    public Publisher.Builder publisher() {
        return new Publisher.Builder(this);
    }

    /**
     * Closes when the JVM shuts down, on SIGTERM, Ctrl-C or {@code System.exit}: no further batch is taken, those in
     * hand are finished and settled, and only then the JVM ends. So a handler must not call {@code System.exit}, which
     * would wait for the handler itself; it may {@link Worker#drain}. Also waits for batches taken from a {@link
     * Consumer}, for its {@code drainTimeout} at most.
     */
    public Offramp closeOnShutdown() {
        return closeOnShutdown(() -> {});
    }

    /**
     * Like {@link #closeOnShutdown()}, and runs this afterwards. Use it for what must come last: the JVM does not wait
     * for code after {@link Worker#join}.
     */
    public synchronized Offramp closeOnShutdown(Runnable last) {
        checkOpen();
        if (hook != null) {
            throw new IllegalStateException("closeOnShutdown was called before");
        }
        hook = new Thread(
                () -> {
                    drainAndClose();
                    last.run();
                },
                "offramp-shutdown");
        Runtime.getRuntime().addShutdownHook(hook);
        return this;
    }

    /**
     * Closes all workers (see {@link Worker#close}; they drain at the same time), then consumers, then publishers,
     * which handlers may need until the end. Further calls are harmless; a concurrent second caller waits for the
     * first.
     */
    @Override
    public void close() {
        List<AutoCloseable> all = drain();
        for (Class<?> kind : List.of(Worker.class, Consumer.class, Publisher.class)) {
            all.stream().filter(kind::isInstance).forEach(Offramp::close);
        }
        transport.close();
        removeHook();
    }

    /** Like {@link #close}, but first waits for batches that were taken from consumers, on other threads. */
    void drainAndClose() {
        for (AutoCloseable one : drain()) {
            if (one instanceof Consumer consumer) {
                consumer.closeOnceSettled();
            }
        }
        close();
    }

    private List<AutoCloseable> drain() {
        List<AutoCloseable> all;
        synchronized (this) {
            closed = true;
            all = List.copyOf(open);
        }
        all.forEach(Offramp::drain);
        return all;
    }

    private static void drain(AutoCloseable one) {
        if (one instanceof Worker worker) {
            worker.drain();
        } else if (one instanceof Consumer consumer) {
            consumer.drain();
        }
    }

    private static void close(AutoCloseable one) {
        try {
            one.close();
        } catch (Exception error) {
            log.warn("closing {} failed", one.getClass().getSimpleName(), error);
        }
    }

    private synchronized void removeHook() {
        if (hook != null && Thread.currentThread() != hook) {
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
            } catch (IllegalStateException error) {
                // The JVM is shutting down, and the hook runs.
            }
        }
        hook = null;
    }

    Transport transport() {
        return transport;
    }

    /** Registers an object to be closed with this one. The returned task is to be run when it closes by itself. */
    synchronized Runnable register(AutoCloseable one) {
        checkOpen();
        open.add(one);
        return () -> unregister(one);
    }

    private synchronized void unregister(AutoCloseable one) {
        open.remove(one);
    }

    private void checkOpen() {
        if (closed) {
            throw new OfframpException.Closed("the connection to " + transport.address() + " is closed");
        }
    }
}
