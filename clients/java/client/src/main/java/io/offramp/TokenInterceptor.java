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
 * Adds the token to every call. Without a valid one, the call fails before anything is sent: with UNAVAILABLE while the
 * token's file is empty or cannot be read, with UNAUTHENTICATED if its content is not a token.
 */
final class TokenInterceptor implements ClientInterceptor {
    private final Access access;

    TokenInterceptor(Access access) {
        this.access = access;
    }

    @Override
    public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
        return new CheckedForwardingClientCall<>(next.newCall(method, options)) {
            @Override
            protected void checkedStart(Listener<A> listener, Metadata headers) throws StatusException {
                try {
                    access.addToken(headers);
                } catch (IllegalArgumentException error) {
                    boolean retry = error instanceof Access.TokenFileError;
                    throw (retry ? Status.UNAVAILABLE : Status.UNAUTHENTICATED)
                            .withDescription("there is no token")
                            .withCause(error)
                            .asException();
                }
                delegate().start(listener, headers);
            }
        };
    }
}
