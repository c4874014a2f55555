"""The versions and defaults of the protocol that this package speaks."""

#: the package of the protocol; its major version is part of the name
PROTOCOL = "offramp.v1"
#: the minor version that the generated stubs are from
PROTOCOL_MINOR = 0
#: the lowest minor version of a sidecar that this client can work with
NEEDS_PROTOCOL_MINOR = 0
#: of this package
VERSION = "0.1.0"
#: where a sidecar listens by default
DEFAULT_ADDRESS = "unix:/run/offramp/offramp.sock"
#: bytes; the largest message that a gRPC client accepts by default
DEFAULT_MESSAGE_BYTES = 4 << 20
#: bytes; longer reasons are cut
MOST_REASON = 1024
