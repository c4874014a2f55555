package io.offramp;

import java.nio.file.Path;
import java.time.Duration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** A test with a real client and a fake sidecar, which can misbehave. */
@Timeout(60)
abstract class FakeSidecarTest {
    static final Duration TIMEOUT = Duration.ofMillis(FakeSidecar.TIMEOUT_MS);

    FakeSidecar sidecar;
    Offramp offramp;

    @BeforeEach
    void open(@TempDir Path folder) throws Exception {
        sidecar = FakeSidecar.started(folder);
        offramp = Offramp.connect(sidecar.address);
    }

    @AfterEach
    void close() throws Exception {
        offramp.close();
        sidecar.close();
    }

    static Batch take(Consumer consumer) throws InterruptedException {
        Batch batch = consumer.poll(TIMEOUT);
        if (batch == null) {
            throw new AssertionError("no batch arrived");
        }
        return batch;
    }
}
