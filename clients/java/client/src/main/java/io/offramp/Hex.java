package io.offramp;

import com.google.protobuf.ByteString;
import java.util.HexFormat;

/** Leases as text, for messages. */
final class Hex {
    private Hex() {}

    static String of(ByteString bytes) {
        return HexFormat.of().formatHex(bytes.toByteArray());
    }
}
