package io.offramp;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A header of a message. Names may repeat.
 *
 * @param value null is a header without a value, which is not the same as an empty one
 */
public record Header(String name, byte @Nullable [] value) {
    public Header {
        Objects.requireNonNull(name, "name");
    }

    public static Header of(String name, @Nullable String value) {
        return new Header(name, value == null ? null : value.getBytes(StandardCharsets.UTF_8));
    }

    /** The value as UTF-8; null if there is none. */
    public @Nullable String valueAsText() {
        return value == null ? null : new String(value, StandardCharsets.UTF_8);
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof Header header && name.equals(header.name) && Arrays.equals(value, header.value);
    }

    @Override
    public int hashCode() {
        return 31 * name.hashCode() + Arrays.hashCode(value);
    }

    @Override
    public String toString() {
        return name + "=" + valueAsText();
    }
}
