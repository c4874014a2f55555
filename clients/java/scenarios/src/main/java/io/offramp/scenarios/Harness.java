package io.offramp.scenarios;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Objects;

/** The runner's side of the harness: its environment, its lines and its expectations; see clients/SCENARIOS.md. */
final class Harness {
    static final String SUBSCRIPTION = env("SCENARIO_SUBSCRIPTION");
    static final String OTHER_SUBSCRIPTION = env("SCENARIO_OTHER_SUBSCRIPTION");
    static final String REPLY_TOPIC = env("SCENARIO_REPLY_TOPIC");
    static final int RECORDS = number("SCENARIO_RECORDS", 0);
    static final int PART = number("SCENARIO_PART", 1);

    /** An expectation of the scenario does not hold. */
    static final class Failed extends RuntimeException {
        Failed(String what) {
            super(what);
        }
    }

    private Harness() {}

    static void expect(boolean holds, String what) {
        if (!holds) {
            throw new Failed(what);
        }
    }

    static void equal(Object seen, Object wanted) {
        expect(Objects.equals(seen, wanted), seen + " instead of " + wanted);
    }

    /** In one write, so that lines of several threads do not mix. */
    static void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.isEmpty() ? "" : " ").append(word);
        }
        byte[] bytes = line.append('\n').toString().getBytes(StandardCharsets.UTF_8);
        PrintStream out = System.out;
        out.write(bytes, 0, bytes.length);
        out.flush();
    }

    static void waitForGo() {
        try {
            int read;
            do {
                read = System.in.read();
                expect(read >= 0, "the harness closed standard input instead of sending go");
            } while (read != '\n');
        } catch (IOException error) {
            throw new Failed("cannot read from the harness: " + error);
        }
    }

    static String inOneLine(Throwable error) {
        return String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
    }

    private static String env(String name) {
        return Objects.requireNonNullElse(System.getenv(name), "");
    }

    private static int number(String name, int otherwise) {
        String text = env(name);
        return text.isEmpty() ? otherwise : Integer.parseInt(text);
    }
}
