package io.offramp;

import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * Where a sidecar listens.
 *
 * @param path of the unix socket; null for TCP
 */
record Address(String text, @Nullable String path, @Nullable String host, int port) {
    private static final Pattern LOOPBACK = Pattern.compile("127(\\.[0-9]{1,3}){3}");

    /** {@code unix:/path}, {@code /path} or {@code host:port}. Null: the environment's, or the default. */
    static Address parse(@Nullable String address) {
        if (address == null || address.isEmpty()) {
            String configured = System.getenv("OFFRAMP_ADDRESS");
            address = configured == null || configured.isEmpty() ? Protocol.DEFAULT_ADDRESS : configured;
        }
        if (address.startsWith("/")) {
            return new Address("unix:" + address, address, null, 0);
        }
        if (address.startsWith("unix:")) {
            String path = address.substring("unix:".length());
            // gRPC also writes absolute paths as unix:///path.
            return unix(address, path.startsWith("///") ? path.substring(2) : path);
        }
        int colon = address.lastIndexOf(':');
        String host = colon < 0 ? "" : address.substring(0, colon);
        int port = colon < 0 ? -1 : port(address.substring(colon + 1));
        if (host.isEmpty() || port < 0) {
            throw new IllegalArgumentException(
                    "address: \"" + address + "\" is none of unix:/path, /path and host:port");
        }
        return new Address(address, null, host, port);
    }

    private static Address unix(String address, String path) {
        if (path.isEmpty()) {
            throw new IllegalArgumentException("address: \"" + address + "\" has no path");
        }
        return new Address(address, path, null, 0);
    }

    private static int port(String text) {
        try {
            int port = Integer.parseInt(text);
            return port > 0 && port < 65_536 ? port : -1;
        } catch (NumberFormatException error) {
            return -1;
        }
    }

    boolean isUnix() {
        return path != null;
    }

    /** On this host, where the kernel reports a closed connection. */
    boolean isLocal() {
        return host == null || host.equals("localhost") || host.equals("[::1]") || LOOPBACK.matcher(host).matches();
    }

    @Override
    public String toString() {
        return text;
    }
}
