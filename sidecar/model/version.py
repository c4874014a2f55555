"""The versions of the sidecar and of its protocol. The former is defined in pyproject.toml only."""

from importlib import metadata

#: the package of the protocol, and the minor version that this sidecar speaks
PROTOCOL = "offramp.v1"
PROTOCOL_MINOR = 0
#: what this sidecar can do beyond the first version of the protocol, as `Welcome.features` and docs/protocol.md name it
FEATURES = (
    # a session can outlive its connection: `resume_ms` and `resume`
    "resume",
)


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        # Run from a copy of the sources that is not installed.
        return "0+unknown"


VERSION = _installed("offramp-sidecar")
