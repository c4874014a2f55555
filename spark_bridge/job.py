"""The ready job: reads a subscription, transforms it if told so, and writes it to a sink.

    python -m spark_bridge --address 127.0.0.1:4770 --subscription clicks --checkpoint ./checkpoint \
        --transform my_module:per_minute parquet ./out

The same with spark-submit: `spark-submit path/to/spark_bridge/__main__.py ...`.
"""

import argparse
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, TextIO

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import to_json
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from offramp.channel import ProofOptions
from offramp.errors import OfframpError
from spark_bridge.commit_listener import flush, install
from spark_bridge.errors import BadOption, did_you_mean, root_cause
from spark_bridge.progress import source_progress

#: seconds between two polls of the query, while it runs and while it stops
_POLL_INTERVAL, _STOP_POLL_INTERVAL = 1, 0.02
#: seconds for the current batch after a signal: less than the 30 that Kubernetes and most service managers give
_GRACE = 20.0
#: options that are credentials, and their names in Python
_CREDENTIALS: Mapping[str, str] = {
    "token": "token",
    "tokenFile": "token_file",
    "ca": "ca",
    "certificate": "certificate",
    "key": "key",
    "serverName": "server_name",
}

Transform = Callable[[DataFrame], DataFrame]


def main(arguments: Sequence[str] | None = None) -> int:
    given = argument_parser().parse_args(arguments)
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    try:
        transform = load_transform(given.transform) if given.transform else None
        options, settings = pairs("--option", given.option), pairs("--conf", given.conf)
    except BadOption as error:
        print(f"spark_bridge: {error}", file=sys.stderr)
        return 2
    try:
        spark = session(given, settings)
    except PySparkException as error:
        # No Java, or an invalid master: the JVM has printed more.
        print(f"spark_bridge: {root_cause(error)}", file=sys.stderr)
        return 1
    # After Spark has set its own handlers: with those, Ctrl-C cancels its jobs.
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, on_signal)
    try:
        return run(spark, given, transform, options, stop)
    except (OfframpError, PySparkException) as error:
        print(f"spark_bridge: {root_cause(error)}", file=sys.stderr)
        return 1
    finally:
        spark.stop()


def run(
    spark: SparkSession,
    given: argparse.Namespace,
    transform: Transform | None,
    options: dict[str, str],
    stop: threading.Event,
) -> int:
    """Runs the query until it ends or `stop` is set; then the current batch is finished first, within `--grace`."""
    credentials = collect_credentials(given, options)
    in_python = ProofOptions(**{_CREDENTIALS[name]: value for name, value in credentials.items()})  # type: ignore[typeddict-item]
    install(spark, **in_python)
    source = spark.readStream.format("offramp").option("address", given.address)
    records = source.option("subscription", given.subscription).options(**options).options(**credentials).load()
    df = transform(records) if transform else untransformed(records, given.sink)
    query = start_query(df, given, credentials)
    reporter = Reporter(sys.stdout, quiet=given.quiet)
    reporter.started(given.subscription, given.sink)
    while not stop.is_set() and not query.awaitTermination(timeout=_POLL_INTERVAL):
        reporter.show(query.recentProgress)
    if query.isActive:
        finish_batch(query, time.monotonic() + given.grace)
        query.stop()
    if (failure := query.exception()) is not None:
        # The last batch failed while `finish_batch` waited for it.
        raise failure
    reporter.show(query.recentProgress)
    flush(query, **in_python)
    reporter.ended()
    return 0


def finish_batch(query: StreamingQuery, ends: float) -> None:
    """Waits until the current batch is done, at most until `ends` on the monotonic clock.

    Spark cancels the current batch when it stops a query. The batch is repeated at the next start, so a sink that is
    not idempotent gets a part of it twice. Under a backlog the next batch begins at once and the trigger is hardly ever
    seen inactive: then a new progress says that the batch is done.
    """
    before = query.lastProgress
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < ends:
        now = query.lastProgress
        if now is not None and (before is None or now.batchId != before.batchId):
            return
        time.sleep(_STOP_POLL_INTERVAL)


def collect_credentials(given: argparse.Namespace, options: Mapping[str, str]) -> dict[str, str]:
    """The credentials for the source, the listener and the sink, from `--option` and from arguments, which win."""
    by_lower = {name.lower(): name for name in _CREDENTIALS}
    found = {by_lower[name.lower()]: value for name, value in options.items() if name.lower() in by_lower}
    arguments = {"token": given.token, "tokenFile": given.token_file, "ca": given.ca}
    return found | {name: value for name, value in arguments.items() if value}


def untransformed(records: DataFrame, sink: str) -> DataFrame:
    """The records as the sink can take them, if there is no transformation."""
    match sink:
        # The topic assigns lane, position and timestamp itself. A table has no column type for a list.
        case "offramp":
            return records.select("key", "value", "headers")
        case "jdbc":
            return records.withColumn("headers", to_json("headers"))
        case _:
            return records


def start_query(df: DataFrame, given: argparse.Namespace, credentials: dict[str, str]) -> StreamingQuery:
    """Starts the query into the chosen sink."""
    writer: DataStreamWriter = df.writeStream.queryName(given.name or given.subscription).outputMode(given.mode)
    writer = writer.option("checkpointLocation", given.checkpoint)
    writer = writer.trigger(availableNow=True) if given.available_now else writer.trigger(processingTime=given.every)
    match given.sink:
        case "parquet":
            return writer.format("parquet").option("path", given.path).start()
        case "console":
            return writer.format("console").option("truncate", "false").option("numRows", str(given.rows)).start()
        case "offramp":
            writer = writer.format("offramp").option("address", given.to or given.address).option("topic", given.topic)
            broker = {"broker": given.broker} if given.broker else {"subscription": given.subscription}
            return writer.options(**broker).options(**credentials).start()
        case _:
            return writer.foreachBatch(jdbc_writer(given)).start()


def jdbc_writer(given: argparse.Namespace) -> Callable[[DataFrame, int], None]:
    """Writes each batch with its id in the column `batch_id`, which shows what was written twice."""
    properties = {"user": given.user, "password": os.environ.get("JDBC_PASSWORD"), "driver": given.driver}
    options = {name: value for name, value in properties.items() if value}

    def write_batch(df: DataFrame, batch_id: int) -> None:
        from pyspark.sql.functions import lit  # noqa: PLC0415 - Spark Connect must be able to send this function alone

        rows = df.withColumn("batch_id", lit(batch_id))
        rows.write.format("jdbc").option("url", given.url).option("dbtable", given.table).options(**options).mode(
            "append"
        ).save()

    return write_batch


def session(given: argparse.Namespace, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName(given.name or f"offramp {given.subscription}")
    # Spark's progress bar would overwrite our lines.
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if given.master:
        builder = builder.master(given.master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def load_transform(name: str) -> Transform:
    """The function `module:function`. Raises `BadOption`."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise BadOption(f'--transform: "{name}" is not module:function')
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise BadOption(
            f'--transform: there is no module "{error.name}"; looked in this folder and in sys.path'
        ) from error
    if not callable(getattr(found, function, None)):
        names = [one for one in vars(found) if not one.startswith("_") and callable(getattr(found, one))]
        raise BadOption(f'--transform: {module} has no function "{function}".{did_you_mean(function, names)}')
    transform: Transform = getattr(found, function)
    return transform


def pairs(argument: str, given: Sequence[str]) -> dict[str, str]:
    """Parses `name=value` arguments. Raises `BadOption`."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise BadOption(f'{argument}: "{text}" is not name=value')
        found[name] = value
    return found


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m spark_bridge",
        description="Reads a subscription of an Offramp sidecar with Spark and writes it to a sink. Continues where it "
        "stopped when it is started again. On Ctrl-C and SIGTERM it finishes the current batch.",
    )
    parser.add_argument("--address", required=True, help="the sidecar: host:port, or unix:/path on one machine")
    parser.add_argument("--subscription", required=True, help="a subscription of the sidecar with mode: ranges")
    parser.add_argument("--checkpoint", required=True, metavar="FOLDER", help="where the query keeps its positions")
    parser.add_argument("--transform", metavar="MODULE:FUNCTION", help="a function from DataFrame to DataFrame")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another option of the source; credentials (certificate, key, serverName) also apply to commits and to "
        "the sink offramp",
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=_GRACE,
        metavar="SECONDS",
        help=f"time for the current batch after a signal, before it is cancelled (default: {_GRACE:g})",
    )
    parser.add_argument("--available-now", action="store_true", help="process what is there now, then end")
    parser.add_argument("--every", default="1 second", metavar="TIME", help="time between batches (default: 1 second)")
    parser.add_argument("--mode", default="append", choices=("append", "update", "complete"), help="the output mode")
    parser.add_argument("--name", help="the query's name (default: the subscription's)")
    parser.add_argument("--master", help="Spark's master, as in local[2] (default: that of spark-submit)")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting")
    parser.add_argument("--token", help="the token for a sidecar beyond loopback (better: OFFRAMP_TOKEN)")
    parser.add_argument("--token-file", metavar="FILE", help="a file with the token, here and on the executors")
    parser.add_argument("--ca", metavar="FILE", help="a PEM file: the authorities to trust over TLS")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    sinks = parser.add_subparsers(dest="sink", required=True, metavar="SINK")
    sinks.add_parser("parquet", help="files in a folder").add_argument("path", help="the folder")
    console = sinks.add_parser("console", help="the terminal")
    console.add_argument("--rows", type=int, default=20, help="rows to print of each batch")
    database = sinks.add_parser("jdbc", help="a table; the password is taken from JDBC_PASSWORD in the environment")
    database.add_argument("url", help="as in jdbc:postgresql://host/database")
    database.add_argument("table")
    database.add_argument("--user")
    database.add_argument("--driver", help="the driver's class, if Spark cannot infer it from the URL")
    topic = sinks.add_parser("offramp", help="a topic, through a sidecar")
    topic.add_argument("topic")
    topic.add_argument("--to", metavar="ADDRESS", help="a sidecar other than the one that is read from")
    topic.add_argument("--broker", help="a broker by its name (default: that of the subscription)")
    return parser


class Reporter:
    """Prints one line for each batch that had records."""

    def __init__(self, to: TextIO, *, quiet: bool = False) -> None:
        self._to = to
        self._quiet = quiet
        self._last_batch = -1
        self._rows = 0
        self._batches = 0

    def started(self, subscription: str, sink: str) -> None:
        self._print(f"reading {subscription}, writing to {sink}")

    def show(self, progresses: Sequence[Mapping[str, Any]]) -> None:
        """Prints those that it has not printed yet."""
        for progress in progresses:
            if progress["batchId"] <= self._last_batch or not progress["numInputRows"]:
                continue
            self._last_batch = progress["batchId"]
            self._rows += progress["numInputRows"]
            self._batches += 1
            self._print(batch_line(progress))

    def ended(self) -> None:
        self._print(f"{self._rows:,} records in {self._batches} batches; all that was done is committed")

    def _print(self, text: str) -> None:
        if not self._quiet:
            print(text, file=self._to, flush=True)


def batch_line(progress: Mapping[str, Any]) -> str:
    rows, took = progress["numInputRows"], progress["batchDuration"]
    rate = f"{rows / took * 1_000:,.0f}/s" if took else "-"
    lag = sum(source.lag for source in source_progress(progress["sources"]))
    return f"batch {progress['batchId']}: {rows:,} records in {took / 1_000:.1f} s ({rate}), {lag:,} behind"
