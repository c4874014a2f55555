package io.offramp;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.grpc.Metadata;
import io.offramp.v1.Part;
import io.offramp.v1.Settlement;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Parts of the client that need no sidecar. */
class UnitTest {
    private static final ByteString LEASE = ByteString.copyFromUtf8("lease");
    private static final Metadata.Key<String> AUTHORIZATION =
            Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

    private static String shown(Access access) {
        Metadata headers = new Metadata();
        access.addToken(headers);
        return headers.get(AUTHORIZATION);
    }

    @ParameterizedTest
    @CsvSource({
        "localhost:1, true", "127.0.0.1:1, true", "127.9.9.9:1, true", "[::1]:1, true", "10.0.0.1:1, false",
        "127.0.0.1.example:1, false", "sidecar.shop:1, false"
    })
    void onlyLoopbackIsUnencrypted(String text, boolean local) {
        assertEquals(local, Address.parse(text).isLocal());
    }

    @Test
    void aTokenFileIsReadEachTime(@TempDir Path folder) throws IOException {
        Path file = Files.writeString(folder.resolve("token"), "\n old \nolder\n");
        Access access = Access.fromEnvironment().token("said").tokenFile(file);
        assertEquals("Bearer old", shown(access));
        Files.writeString(file, "new");
        assertEquals("Bearer new", shown(access));
        assertEquals("Bearer said", shown(access.token("said")));
    }

    @Test
    void invalidCredentialsAreRefusedWithTheNameOfTheOption() {
        Access access = Access.fromEnvironment();
        Path nowhere = Path.of("/nowhere");
        refuses("token: that is not a token", access.token("two words"));
        refuses("token: that is not a token", access.token(""));
        refuses("tokenFile: /nowhere cannot be read", access.tokenFile(nowhere));
        refuses("ca: /nowhere cannot be read", access.ca(nowhere));
        refuses("certificate: /nowhere cannot be read", access.certificate(nowhere, nowhere));
        refuses("key: a certificate and its key go together", access.certificate(nowhere, null));
    }

    private static void refuses(String said, Access access) {
        Exception error = assertThrows(
                IllegalArgumentException.class, () -> Offramp.connect("127.0.0.1:1", access).close());
        assertTrue(error.getMessage().startsWith(said), error.getMessage());
    }

    @Test
    void aLoggedAccessDoesNotShowTheToken() {
        assertFalse(Access.fromEnvironment().token("s3cret").toString().contains("s3cret"));
    }

    @ParameterizedTest
    @CsvSource({
        "unix:/run/o.sock, /run/o.sock",
        "unix:///run/o.sock, /run/o.sock",
        "unix:./o.sock, ./o.sock",
        "/run/o.sock, /run/o.sock"
    })
    void aUnixSocketIsWrittenInSeveralWays(String text, String path) {
        Address address = Address.parse(text);
        assertEquals(path, address.path());
        assertTrue(address.isLocal());
    }

    @Test
    void aHostHasAPort() {
        Address address = Address.parse("[::1]:5005");
        assertNull(address.path());
        assertEquals("[::1]", address.host());
        assertEquals(5005, address.port());
        assertTrue(address.isLocal());
    }

    @ParameterizedTest
    @ValueSource(strings = {"localhost", "localhost:", ":5005", "localhost:http", "localhost:70000", "unix:"})
    void anInvalidAddressIsRefused(String text) {
        assertThrows(IllegalArgumentException.class, () -> Address.parse(text));
    }

    @Test
    void backoffGrowsToItsLimitAndStartsAgain() {
        Backoff backoff = new Backoff(new Random(1));
        long most = Backoff.FIRST_MS;
        for (int count = 0; count < 20; count++) {
            long next = backoff.nextMs();
            assertTrue(next >= most / 2 && next <= most, next + " is not in the range up to " + most);
            most = Math.min(2 * most, Backoff.LONGEST_MS);
        }
        backoff.reset();
        assertTrue(backoff.nextMs() <= Backoff.FIRST_MS);
    }

    @Test
    void aReasonIsCutToItsLimitWithoutSplittingACharacter() {
        String long_ = "x" + "✗".repeat(1_000);
        String kept = Outcome.reject(long_).reason();
        assertTrue(long_.startsWith(kept));
        int bytes = kept.getBytes(StandardCharsets.UTF_8).length;
        assertTrue(bytes <= 1_024 && bytes > 1_020);
        assertEquals("", Outcome.reject(null).reason());
    }

    @Test
    void aNegativeOrTooLongDelayIsAnError() {
        assertThrows(IllegalArgumentException.class, () -> Outcome.nack("", Duration.ofSeconds(-1)));
        assertThrows(IllegalArgumentException.class, () -> Outcome.nack("", Duration.ofDays(1_000_000)));
        assertEquals(0L, Outcome.nack("", Duration.ZERO).retryAfterMs());
    }

    /** However records were marked, flushed and split: each is settled once, and as it was marked. */
    @Test
    void settlementsHaveEachRecordOnceAsItWasMarked() {
        Random random = new Random(7);
        List<Outcome> outcomes = List.of(
                Outcome.ACK, Outcome.RELEASE, Outcome.reject("bad"), Outcome.nack("no", Duration.ofMillis(3)));
        for (int round = 0; round < 2_000; round++) {
            int records = 1 + random.nextInt(40);
            Outcome[] marks = new Outcome[records];
            BitSet flushed = new BitSet();
            for (int index = 0; index < records; index++) {
                if (random.nextInt(3) > 0) {
                    marks[index] = outcomes.get(random.nextInt(outcomes.size()));
                }
                if (random.nextInt(4) == 0) {
                    flushed.set(index);
                }
            }
            Outcome rest = outcomes.get(random.nextInt(outcomes.size()));
            boolean partly = random.nextBoolean() && flushed.cardinality() < records;
            Settlement settlement = partly
                    ? Settlements.rest(LEASE, records, flushed, rest, marks)
                    : Settlements.whole(LEASE, rest, marks);
            Outcome[] expected = new Outcome[records];
            for (int index = 0; index < records; index++) {
                if (!partly || !flushed.get(index)) {
                    expected[index] = marks[index] == null ? rest : marks[index];
                }
            }
            check(List.of(settlement), expected);
            check(Settlements.split(settlement, records, 40, 1_000), expected);
        }
    }

    private static void check(List<Settlement> settlements, Outcome[] expected) {
        Outcome[] seen = new Outcome[expected.length];
        for (Settlement settlement : settlements) {
            assertEquals(LEASE, settlement.getLease());
            assertEquals(settlement.getPartial(), settlement.getOutcome() == io.offramp.v1.Outcome.OUTCOME_UNSPECIFIED);
            List<Part> parts = new ArrayList<>(settlement.getPartsList());
            int stop = 0;
            for (Part part : parts) {
                assertTrue(part.getFirst() >= stop && part.getCount() > 0, "parts are not ascending");
                stop = part.getFirst() + part.getCount();
                for (int index = part.getFirst(); index < stop; index++) {
                    assertNull(seen[index], "a record was settled twice");
                    seen[index] = new Outcome(
                            part.getOutcome(),
                            part.getReason(),
                            part.hasRetryAfterMs() ? part.getRetryAfterMs() : null);
                }
            }
            for (int index = 0; index < seen.length && !settlement.getPartial(); index++) {
                if (seen[index] == null) {
                    seen[index] = new Outcome(
                            settlement.getOutcome(),
                            settlement.getReason(),
                            settlement.hasRetryAfterMs() ? settlement.getRetryAfterMs() : null);
                }
            }
        }
        assertEquals(List.of(nullable(expected)), List.of(nullable(seen)));
    }

    private static List<String> nullable(Outcome[] outcomes) {
        List<String> out = new ArrayList<>();
        for (Outcome outcome : outcomes) {
            out.add(String.valueOf(outcome));
        }
        return out;
    }

    @Test
    void theWorstResultOfPiecesIsTheResult() {
        SettleResult stale = new SettleResult(SettleStatus.STALE, List.of(new SettleResult.Range(3, 1)), "moved", "");
        SettleResult merged = SettleResult.merge(List.of(SettleResult.SETTLED, stale, SettleResult.SETTLED));
        assertEquals(stale, merged);
        assertTrue(SettleResult.merge(List.of(SettleResult.SETTLED)).settled());
    }
}
