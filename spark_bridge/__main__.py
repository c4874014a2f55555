"""Entry point of `python -m spark_bridge`, and the file to give to spark-submit."""

import sys

from spark_bridge.job import main

if __name__ == "__main__":
    sys.exit(main())
