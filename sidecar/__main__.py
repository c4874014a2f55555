"""`python -m sidecar` is `offramp`."""

import sys

from sidecar.cli import main

if __name__ == "__main__":
    sys.exit(main())
