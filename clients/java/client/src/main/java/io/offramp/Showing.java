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

/** Shows the token with every call. A call whose token cannot be read ends as one that the sidecar refused. */
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
                    throw Status.UNAUTHENTICATED
                            .withDescription(error.getMessage())
                            .withCause(error)
                            .asException();
                }
                delegate().start(listener, headers);
            }
        };
    }
}
