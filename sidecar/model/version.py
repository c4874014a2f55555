"""Which Offramp this is. The number itself stands in pyproject.toml and nowhere else."""

from importlib import metadata

#: the package of the protocol, and the minor version that this sidecar speaks
PROTOCOL = "offramp.v1"
PROTOCOL_MINOR = 0


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        # Run from a plain copy of the sources, which nothing has installed.
        return "0+unknown"


VERSION = _installed("offramp-sidecar")
