"""`python -m spark_bridge --help`; also what spark-submit is given."""

import sys

from spark_bridge.job import main

if __name__ == "__main__":
    sys.exit(main())
