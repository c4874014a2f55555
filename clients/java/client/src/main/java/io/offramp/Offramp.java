package io.offramp;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The way to one sidecar, from which workers, consumers and publishers are made.
 *
 * <p>Closing it closes all of them. One is enough for a process, whatever it consumes.
 */
public final class Offramp implements AutoCloseable {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");

    private final Transport transport;
    private final Set<AutoCloseable> open = new LinkedHashSet<>();
    private boolean closed;
    private Thread hook;

    private Offramp(Address address, Access access) {
        this.transport = new Transport(address, access);
    }

    /** To the sidecar at the environment's OFFRAMP_ADDRESS, or else at {@code unix:/run/offramp/offramp.sock}. */
    public static Offramp connect() {
        return connect(null);
    }

    /**
     * To the sidecar at this address: {@code unix:/path}, {@code /path} or {@code host:port}. Does not wait for it: those
     * who need it wait by themselves.
     */
    public static Offramp connect(String address) {
        return connect(address, Access.fromEnvironment());
    }

    /** As {@link #connect(String)}, with a token, a certificate, or authorities to trust. */
    public static Offramp connect(String address, Access access) {
        return new Offramp(Address.parse(address), access);
    }

    /** A worker of a subscription: give it a handler, and start it. */
    public Worker.Builder worker(String subscription) {
        return new Worker.Builder(this, subscription);
    }

    /** A consumer of a subscription, to be iterated over. */
    public Consumer.Builder consumer(String subscription) {
        return new Consumer.Builder(this, subscription);
    }

    /** Sends messages to a broker. */
    public Publisher.Builder publisher() {
        return new Publisher.Builder(this);
    }

    /**
     * Close when the JVM is told to end, by SIGTERM or Ctrl-C or {@code System.exit}: no further batch is taken, those
     * in hand are finished and settled, and only then the JVM ends. So a handler must not call {@code System.exit}
     * itself: it would wait for its own end. It may {@link Worker#drain}. What was taken from a {@link Consumer} is waited
     * for, too, for as long as its {@code drainTimeout} says.
     */
    public Offramp closeOnShutdown() {
        return closeOnShutdown(() -> {});
    }

    /**
     * As {@link #closeOnShutdown()}, and then run this. It is the place for what must come last: what stands after
     * {@link Worker#join} runs beside the end of the JVM, which does not wait for it.
     */
    public synchronized Offramp closeOnShutdown(Runnable last) {
        checkOpen();
        if (hook != null) {
            throw new IllegalStateException("closeOnShutdown was called before");
        }
        hook = new Thread(
                () -> {
                    finish();
                    last.run();
                },
                "offramp-shutdown");
        Runtime.getRuntime().addShutdownHook(hook);
        return this;
    }

    /**
     * Closes all workers (see {@link Worker#close}; all of them drain at the same time), then consumers, then publishers,
     * which handlers may need until the end. Harmless when done again; a second caller waits for the first.
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

    /** As {@link #close}, but those who have taken batches from consumers, on threads of their own, may settle them. */
    void finish() {
        for (AutoCloseable one : drain()) {
            if (one instanceof Consumer consumer) {
                consumer.awaitSettled();
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
            log.warn("{} could not be closed in order", one.getClass().getSimpleName(), error);
        }
    }

    private synchronized void removeHook() {
        if (hook != null && Thread.currentThread() != hook) {
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
            } catch (IllegalStateException error) {
                // The JVM is ending, and the hook runs.
            }
        }
        hook = null;
    }

    Transport transport() {
        return transport;
    }

    /** Remembers what is to be closed with this. The answer is to be run when it is closed by itself. */
    synchronized Runnable opened(AutoCloseable one) {
        checkOpen();
        open.add(one);
        return () -> forget(one);
    }

    private synchronized void forget(AutoCloseable one) {
        open.remove(one);
    }

    private void checkOpen() {
        if (closed) {
            throw new OfframpException.Closed("the connection to " + transport.address() + " is closed");
        }
    }
}
