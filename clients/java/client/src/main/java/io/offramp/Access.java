package io.offramp;

import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslContext;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslContextBuilder;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import javax.net.ssl.SSLException;

/**
 * How a client proves who it is, and whom it trusts. Immutable: each method answers a new one.
 *
 * <p>What is not said comes from the environment: OFFRAMP_TOKEN, OFFRAMP_TOKEN_FILE, OFFRAMP_CA, OFFRAMP_CERTIFICATE,
 * OFFRAMP_KEY, OFFRAMP_SERVER_NAME. A sidecar beyond loopback speaks TLS only, so a connection to one is always TLS and a
 * token never leaves this machine in the clear. To a loopback address it is TLS if {@link #ca} or {@link #certificate}
 * is given.
 */
public final class Access {
    private static final Metadata.Key<String> AUTHORIZATION =
            Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

    private final String token;
    private final Path tokenFile;
    private final Path ca;
    private final Path certificate;
    private final Path key;
    private final String serverName;

    private Access(String token, Path tokenFile, Path ca, Path certificate, Path key, String serverName) {
        this.token = token;
        this.tokenFile = tokenFile;
        this.ca = ca;
        this.certificate = certificate;
        this.key = key;
        this.serverName = serverName;
    }

    /** As the environment says. */
    public static Access fromEnvironment() {
        String token = variable("OFFRAMP_TOKEN");
        return new Access(
                token,
                token == null ? file("OFFRAMP_TOKEN_FILE") : null,
                file("OFFRAMP_CA"),
                file("OFFRAMP_CERTIFICATE"),
                file("OFFRAMP_KEY"),
                variable("OFFRAMP_SERVER_NAME"));
    }

    /** With this token. */
    public Access token(String token) {
        return new Access(token, null, ca, certificate, key, serverName);
    }

    /**
     * With the token in the first line of a file, which is read again for each call, so that it may be rotated. One
     * that is empty or cannot be read is refused when connecting; later it counts as a sidecar that is away.
     */
    public Access tokenFile(Path file) {
        return new Access(null, file, ca, certificate, key, serverName);
    }

    /** Trusting the authorities in this PEM file. Without it, those of Java. */
    public Access ca(Path file) {
        return new Access(token, tokenFile, file, certificate, key, serverName);
    }

    /** With a certificate to show, and its private key in PKCS 8 form: PEM files both. */
    public Access certificate(Path certificate, Path key) {
        return new Access(token, tokenFile, ca, certificate, key, serverName);
    }

    /** The name in the sidecar's certificate, where that is not the host of the address. */
    public Access serverName(String name) {
        return new Access(token, tokenFile, ca, certificate, key, name);
    }

    String serverName() {
        return serverName;
    }

    boolean asksForTls() {
        return ca != null || certificate != null;
    }

    /** @throws IllegalArgumentException which names what is wrong with which file */
    SslContext sslContext() {
        if ((certificate == null) != (key == null)) {
            throw new IllegalArgumentException("key: a certificate and its key go together; give both, or neither");
        }
        checkReadable("ca", ca);
        checkReadable("certificate", certificate);
        checkReadable("key", key);
        SslContextBuilder builder = GrpcSslContexts.forClient();
        try {
            if (ca != null) {
                builder.trustManager(ca.toFile());
            }
            if (certificate != null) {
                builder.keyManager(certificate.toFile(), key.toFile());
            }
            return builder.build();
        } catch (SSLException | IllegalArgumentException error) {
            throw new IllegalArgumentException("ca, certificate or key: " + error.getMessage(), error);
        }
    }

    /**
     * Puts the token among what a call carries, if there is one.
     *
     * @throws NoTokenNow while the file has none
     * @throws IllegalArgumentException for what is not a token
     */
    void show(Metadata headers) {
        String shown = token != null ? token : tokenFile == null ? null : tokenOfFile();
        if (shown == null) {
            return;
        }
        if (shown.isEmpty() || !shown.chars().allMatch(each -> each > 0x20 && each < 0x7f)) {
            throw new IllegalArgumentException((token != null ? "token" : "tokenFile: " + tokenFile)
                    + ": that is not a token: one line of printable ASCII without spaces");
        }
        headers.put(AUTHORIZATION, "Bearer " + shown);
    }

    private String tokenOfFile() {
        // In a charset that takes any bytes: what is not a token is no failure to read.
        try (Stream<String> lines = Files.lines(tokenFile, StandardCharsets.ISO_8859_1)) {
            return lines.map(String::strip)
                    .filter(line -> !line.isEmpty())
                    .findFirst()
                    .orElseThrow(() -> new NoTokenNow("tokenFile: " + tokenFile + " is empty", null));
        } catch (IOException | UncheckedIOException error) {
            throw new NoTokenNow("tokenFile: " + tokenFile + " cannot be read", error);
        }
    }

    /** A token file that is empty or cannot be read, as one that is being rotated in place: a retry may help. */
    static final class NoTokenNow extends IllegalArgumentException {
        NoTokenNow(String text, Throwable cause) {
            super(text, cause);
        }

        /** Whether a call ended by this. Then nothing of it was sent. */
        static boolean ended(Throwable error) {
            return Status.fromThrowable(error).getCause() instanceof NoTokenNow;
        }
    }

    private static void checkReadable(String option, Path file) {
        if (file != null && !Files.isReadable(file)) {
            throw new IllegalArgumentException(option + ": " + file + " cannot be read");
        }
    }

    private static String variable(String name) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? null : value;
    }

    private static Path file(String name) {
        String value = variable(name);
        return value == null ? null : Path.of(value);
    }

    /** Without the token: whoever logs this must not log it. */
    @Override
    public String toString() {
        return "Access(ca=" + ca + ", certificate=" + certificate + ", serverName=" + serverName + ")";
    }
}
