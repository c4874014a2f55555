package io.offramp;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** A token that is rotated in place: for a moment its file exists but has no valid token. */
class TokenFileTest extends FakeSidecarTest {
    /** The log of all tests; see simplelogger.properties. */
    private static final Path LOG = Path.of("target/tests.log");

    enum Trouble {
        EMPTY {
            @Override
            void befall(Path file) throws IOException {
                Files.writeString(file, "\n");
            }
        },
        GONE {
            @Override
            void befall(Path file) throws IOException {
                Files.delete(file);
            }
        },
        A_FOLDER {
            @Override
            void befall(Path file) throws IOException {
                Files.delete(file);
                Files.createDirectory(file);
            }
        };

        abstract void befall(Path file) throws IOException;
    }

    private Path file;
    private Access access;

    @BeforeEach
    void writeToken(@TempDir Path folder) throws IOException {
        file = Files.writeString(folder.resolve("token"), "old");
        access = Access.fromEnvironment().tokenFile(file);
    }

    @ParameterizedTest
    @EnumSource
    void aBadFileIsAClearErrorAtOnce(Trouble trouble) throws Exception {
        trouble.befall(file);
        Exception error = assertThrows(
                IllegalArgumentException.class, () -> Offramp.connect(sidecar.address, access).close());
        String said = "tokenFile: " + file + (trouble == Trouble.EMPTY ? " is empty" : " cannot be read");
        assertEquals(said, error.getMessage());
    }

    @ParameterizedTest
    @EnumSource
    void aFileThatBreaksLaterIsRetriedAndLoggedOnce(Trouble trouble) throws Exception {
        try (Offramp rotating = Offramp.connect(sidecar.address, access);
                Consumer consumer = rotating.consumer("orders").open()) {
            sidecar.session(0);
            trouble.befall(file);
            sidecar.restart();
            // Time for several attempts.
            assertNull(consumer.poll(Duration.ofMillis(500)));
            assertEquals(1, sidecar.sessions.size());
            Files.deleteIfExists(file);
            Files.writeString(file, "new");
            sidecar.offer(List.of(1));
            take(consumer).ack();
        }
        assertEquals(List.of("1"), sidecar.acked());
        List<String> said = Files.readAllLines(LOG).stream().filter(line -> line.contains(file.toString())).toList();
        assertEquals(1, said.size(), said.toString());
        assertTrue(said.get(0).contains("orders: cannot reach the sidecar"), said.toString());
    }

    @Test
    void aFileWithAnInvalidTokenIsRefused() throws Exception {
        try (Offramp rotating = Offramp.connect(sidecar.address, access)) {
            Files.write(file, new byte[] {'t', 'w', 'o', ' ', (byte) 0xff});
            Consumer consumer = rotating.consumer("orders").open();
            assertThrows(OfframpException.Forbidden.class, () -> take(consumer));
        }
    }

    @ParameterizedTest
    @EnumSource
    void aPublisherIsUnavailableMeanwhileAndPublishesLater(Trouble trouble) throws Exception {
        try (Offramp rotating = Offramp.connect(sidecar.address, access);
                Publisher publisher = rotating.publisher().broker("local").open()) {
            trouble.befall(file);
            Exception error = assertThrows(
                    OfframpException.Unavailable.class, () -> publisher.publish("replies", Message.of("1")));
            assertTrue(error.getMessage().contains(file.toString()), error.getMessage());
            assertFalse(error.getMessage().contains("published"), error.getMessage());
            Files.deleteIfExists(file);
            Files.writeString(file, "new");
            assertEquals(new Place(1, 0), publisher.publish("replies", Message.of("1")));
        }
    }
}
