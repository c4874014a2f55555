package io.offramp;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ClientInterceptors.CheckedForwardingClientCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusException;

/**
 * Shows the token with every call. A call without one ends before anything is sent: as one that did not reach the
 * sidecar while the token's file is empty or cannot be read, and as one that the sidecar refused if it is no token.
 */
final class Showing implements ClientInterceptor {
    private final Access access;

    Showing(Access access) {
        this.access = access;
    }

    @Override
    public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
        return new CheckedForwardingClientCall<>(next.newCall(method, options)) {
            @Override
            protected void checkedStart(Listener<A> listener, Metadata headers) throws StatusException {
                try {
                    access.show(headers);
                } catch (IllegalArgumentException error) {
                    Status status = error instanceof Access.NoTokenNow ? Status.UNAVAILABLE : Status.UNAUTHENTICATED;
                    throw status.withDescription("there is no token to show")
                            .withCause(error)
                            .asException();
                }
                delegate().start(listener, headers);
            }
        };
    }
}
