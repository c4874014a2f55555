package io.offramp;

import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.Channel;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.Epoll;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollIoHandler;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.nio.NioIoHandler;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslContext;
import io.grpc.netty.shaded.io.netty.util.concurrent.DefaultThreadFactory;
import io.grpc.netty.shaded.io.netty.util.concurrent.EventExecutor;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/** Channels to one sidecar, all served by one thread. */
final class Transport implements AutoCloseable {
    /** By default, servers close connections that ping more often than every five minutes. */
    private static final long PING_SECONDS = 330;

    private final Address address;
    private final Access access;
    /** Null: plaintext, only on this machine. */
    private final @Nullable SslContext tls;
    /** Epoll if available; else Java's own sockets, also if its native library cannot be unpacked. */
    private final boolean epoll = Epoll.isAvailable();
    private final EventLoopGroup group;

    /** @throws IllegalArgumentException for certificates and tokens that cannot be read */
    Transport(Address address, Access access) {
        this.address = address;
        this.access = access;
        this.tls = !address.isUnix() && (access.requiresTls() || !address.isLocal()) ? access.sslContext() : null;
        access.addToken(new Metadata());
        this.group = new MultiThreadIoEventLoopGroup(
                1,
                new DefaultThreadFactory("offramp-io", true),
                epoll ? EpollIoHandler.newFactory() : NioIoHandler.newFactory());
    }

    Address address() {
        return address;
    }

    /** For small delayed tasks. */
    ScheduledExecutorService timer() {
        return group;
    }

    /** Whether the caller runs on the thread that serves all channels, which must never wait for itself. */
    boolean isOwnThread() {
        for (EventExecutor executor : group) {
            if (executor.inEventLoop()) {
                return true;
            }
        }
        return false;
    }

    /** A new channel, which connects at once: its owner decides when to retry, not gRPC's own backoff. */
    ManagedChannel open(int maxMessageBytes) {
        NettyChannelBuilder builder = address.isUnix()
                ? NettyChannelBuilder.forAddress(socketAddress())
                        .overrideAuthority("localhost")
                        // gRPC sets it, and a unix socket warns about it at every connection: null removes it.
                        .withOption(ChannelOption.SO_KEEPALIVE, null)
                : NettyChannelBuilder.forAddress(address.host(), address.port());
        if (!address.isLocal()) {
            builder.keepAliveTime(PING_SECONDS, TimeUnit.SECONDS);
        }
        if (tls == null) {
            builder.usePlaintext();
        } else {
            builder.sslContext(tls);
            if (access.serverName() != null) {
                builder.overrideAuthority(access.serverName());
            }
        }
        return builder.eventLoopGroup(group)
                .channelType(channelType())
                .intercept(new TokenInterceptor(access))
                .directExecutor()
                // The sidecar is in this pod or cluster: no proxy leads to it.
                .proxyDetector(target -> null)
                .disableRetry()
                .maxInboundMessageSize(maxMessageBytes)
                .build();
    }

    private SocketAddress socketAddress() {
        return epoll ? new DomainSocketAddress(address.path()) : UnixDomainSocketAddress.of(address.path());
    }

    private Class<? extends Channel> channelType() {
        if (address.isUnix()) {
            return epoll ? EpollDomainSocketChannel.class : NioDomainSocketChannel.class;
        }
        return epoll ? EpollSocketChannel.class : NioSocketChannel.class;
    }

    @Override
    public void close() {
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS);
    }
}
