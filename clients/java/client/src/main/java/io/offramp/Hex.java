package io.offramp;

import com.google.protobuf.ByteString;
import java.util.HexFormat;

/** Leases for people. */
final class Hex {
    private Hex() {}

    static String of(ByteString bytes) {
        return HexFormat.of().formatHex(bytes.toByteArray());
    }
}
