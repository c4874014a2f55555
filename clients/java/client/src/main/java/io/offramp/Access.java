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
import org.jspecify.annotations.Nullable;

/**
 * The client's token and certificate, and the authorities it trusts. Immutable: each method returns a new one.
 *
 * <p>What is not given comes from the environment: OFFRAMP_TOKEN, OFFRAMP_TOKEN_FILE, OFFRAMP_CA, OFFRAMP_CERTIFICATE,
 * OFFRAMP_KEY, OFFRAMP_SERVER_NAME. A sidecar beyond loopback accepts TLS only, so a connection to one is always TLS
 * and a token never leaves this machine unencrypted. To a loopback address it is TLS if {@link #ca} or {@link
 * #certificate} is given.
 */
public final class Access {
    private static final Metadata.Key<String> AUTHORIZATION =
            Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

    private final @Nullable String token;
    private final @Nullable Path tokenFile;
    private final @Nullable Path ca;
    private final @Nullable Path certificate;
    private final @Nullable Path key;
    private final @Nullable String serverName;

    private Access(
            @Nullable String token,
            @Nullable Path tokenFile,
            @Nullable Path ca,
            @Nullable Path certificate,
            @Nullable Path key,
            @Nullable String serverName) {
        this.token = token;
        this.tokenFile = tokenFile;
        this.ca = ca;
        this.certificate = certificate;
        this.key = key;
        this.serverName = serverName;
    }

    /** From the environment. */
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
     * With the token in the first line of a file, which is read for each call, so that it can be rotated. If it is
     * empty or cannot be read, connecting throws; later it counts as an unavailable sidecar.
     */
    public Access tokenFile(Path file) {
        return new Access(null, file, ca, certificate, key, serverName);
    }

    /** Trusts the authorities in this PEM file. Default: those of Java. */
    public Access ca(Path file) {
        return new Access(token, tokenFile, file, certificate, key, serverName);
    }

    /** With a client certificate and its private key in PKCS 8 form, both PEM files. */
    public Access certificate(Path certificate, Path key) {
        return new Access(token, tokenFile, ca, certificate, key, serverName);
    }

    /** The name in the sidecar's certificate, if it is not the host of the address. */
    public Access serverName(String name) {
        return new Access(token, tokenFile, ca, certificate, key, name);
    }

    @Nullable String serverName() {
        return serverName;
    }

    boolean requiresTls() {
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
     * Adds the token to a call's headers, if there is one.
     *
     * @throws TokenFileError while the file has none
     * @throws IllegalArgumentException for an invalid token
     */
    void addToken(Metadata headers) {
        String current = token != null ? token : tokenFile == null ? null : firstLine(tokenFile);
        if (current == null) {
            return;
        }
        if (current.isEmpty() || !current.chars().allMatch(each -> each > 0x20 && each < 0x7f)) {
            throw new IllegalArgumentException((token != null ? "token" : "tokenFile: " + tokenFile)
                    + ": that is not a token: one line of printable ASCII without spaces");
        }
        headers.put(AUTHORIZATION, "Bearer " + current);
    }

    private static String firstLine(Path tokenFile) {
        // In a charset that accepts any bytes, so that an invalid token is not reported as an unreadable file.
        try (Stream<String> lines = Files.lines(tokenFile, StandardCharsets.ISO_8859_1)) {
            return lines.map(String::strip)
                    .filter(line -> !line.isEmpty())
                    .findFirst()
                    .orElseThrow(() -> new TokenFileError("tokenFile: " + tokenFile + " is empty", null));
        } catch (IOException | UncheckedIOException error) {
            throw new TokenFileError("tokenFile: " + tokenFile + " cannot be read", error);
        }
    }

    /** A token file that is empty or cannot be read, for example while it is rotated in place: a retry may help. */
    static final class TokenFileError extends IllegalArgumentException {
        TokenFileError(String text, @Nullable Throwable cause) {
            super(text, cause);
        }

        /** Whether a call failed because of this. Then nothing was sent. */
        static boolean causes(Throwable error) {
            return Status.fromThrowable(error).getCause() instanceof TokenFileError;
        }
    }

    private static void checkReadable(String option, @Nullable Path file) {
        if (file != null && !Files.isReadable(file)) {
            throw new IllegalArgumentException(option + ": " + file + " cannot be read");
        }
    }

    private static @Nullable String variable(String name) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? null : value;
    }

    private static @Nullable Path file(String name) {
        String value = variable(name);
        return value == null ? null : Path.of(value);
    }

    /** Without the token, which must not be logged. */
    @Override
    public String toString() {
        return "Access(ca=" + ca + ", certificate=" + certificate + ", serverName=" + serverName + ")";
    }
}
