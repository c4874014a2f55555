package io.offramp;

import com.google.protobuf.ByteString;
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
        Duration resume,
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

    /** The first request of a stream, with this credit, the session to resume or empty, and the leases that are held. */
    ConsumeRequest hello(int batches, ByteString session, Iterable<ByteString> held) {
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
                .setMaxBatchRecords(maxBatchRecords)
                .setResumeMs(resume.toMillis())
                .setResume(session)
                .addAllHeld(held);
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
