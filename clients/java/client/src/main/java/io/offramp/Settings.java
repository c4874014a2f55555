package io.offramp;

import io.offramp.v1.Client;
import io.offramp.v1.ConsumeRequest;
import io.offramp.v1.Credit;
import io.offramp.v1.Hello;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.function.BiConsumer;
import org.jspecify.annotations.Nullable;

/** The options of a connection, checked and complete. */
record Settings(
        String subscription,
        int credit,
        long creditBytes,
        int maxMessageBytes,
        int maxBatchRecords,
        @Nullable Duration lease,
        Duration patience,
        @Nullable String name,
        int needsMinor,
        @Nullable BiConsumer<Batch, SettleResult> onResult) {

    /** How long a batch may wait here: a small part of its lease at most. */
    long waitingNanos() {
        if (lease == null) {
            return patience.toNanos();
        }
        return Math.min(patience.toNanos(), lease.toNanos() / 4);
    }

    /** The first request of a session, with this credit. */
    ConsumeRequest hello(int batches) {
        long pid = ProcessHandle.current().pid();
        Client client = Client.newBuilder()
                .setLanguage("java")
                .setLibrary("offramp-client")
                .setVersion(Protocol.VERSION)
                .setProtocolMinor(Protocol.MINOR)
                .setNeedsProtocolMinor(needsMinor)
                .setPid((int) pid)
                .setName(name == null ? host() + "-" + pid : name)
                .build();
        Hello.Builder hello = Hello.newBuilder()
                .setSubscription(subscription)
                .setClient(client)
                .setCredit(asCredit(batches))
                .setMaxMessageBytes(maxMessageBytes)
                .setMaxBatchRecords(maxBatchRecords);
        if (lease != null) {
            hello.setLeaseMs(lease.toMillis());
        }
        return ConsumeRequest.newBuilder().setHello(hello).build();
    }

    Credit asCredit(int batches) {
        return Credit.newBuilder().setBatches(batches).setBytes(creditBytes).build();
    }

    private static String host() {
        // In a pod this is the pod's name; a lookup in the network may take seconds.
        String host = System.getenv("HOSTNAME");
        if (host != null && !host.isEmpty()) {
            return host;
        }
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException error) {
            return "java";
        }
    }
}
