"""What this package speaks, in one place."""

#: the package of the protocol: its major version is part of the name
PROTOCOL = "offramp.v1"
#: the minor version that these stubs were generated from
PROTOCOL_MINOR = 0
#: the least minor version of a sidecar that this client can work with
NEEDS_PROTOCOL_MINOR = 0
#: of this package
VERSION = "0.1.0"
#: where a sidecar listens unless it is told otherwise
DEFAULT_ADDRESS = "unix:/run/offramp/offramp.sock"
#: bytes; what a gRPC client takes unless it is told otherwise
DEFAULT_MESSAGE_BYTES = 4 << 20
#: bytes; what is kept of a reason
MOST_REASON = 1024
