"""A ready job: a subscription in, an optional transformation, a sink out.

    python -m spark_bridge --address 127.0.0.1:4770 --subscription clicks --checkpoint ./checkpoint \
        --transform my_module:per_minute parquet ./out

The same by spark-submit: `spark-submit path/to/spark_bridge/__main__.py ...`.
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
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import to_json
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from offramp.channel import ProofOptions
from offramp.errors import OfframpError
from spark_bridge.errors import BadOption, nearest
from spark_bridge.listener import flush, install
from spark_bridge.terminal import Reporter, cause

#: seconds between looks at the query while it runs, and while it is to stop
_LOOK, _LAST_LOOKS = 1, 0.02
#: seconds for the batch at work when it is to stop: less than the 30 that Kubernetes and most managers of services give
_GRACE = 20.0
#: options that prove who calls, and what they are called in Python
_PROOF: Mapping[str, str] = {
    "token": "token",
    "tokenFile": "token_file",
    "ca": "ca",
    "certificate": "certificate",
    "key": "key",
    "serverName": "server_name",
}

Transform = Callable[[DataFrame], DataFrame]


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    try:
        transform = load(given.transform) if given.transform else None
        options, settings = pairs("--option", given.option), pairs("--conf", given.conf)
    except BadOption as error:
        print(f"spark_bridge: {error}", file=sys.stderr)
        return 2
    try:
        spark = session(given, settings)
    except PySparkException as error:
        # No Java, or a master that is none: the JVM has said more.
        print(f"spark_bridge: {cause(error)}", file=sys.stderr)
        return 1
    # After Spark has set its own: Ctrl-C would end its jobs in the middle.
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, on_signal)
    try:
        return run(spark, given, transform, options, stop)
    except (OfframpError, PySparkException) as error:
        print(f"spark_bridge: {cause(error)}", file=sys.stderr)
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
    """Until the query ends, or is told to stop: then the batch at work is finished first, if `--grace` allows it."""
    proof = proof_of(given, options)
    said = ProofOptions(**{_PROOF[name]: value for name, value in proof.items()})  # type: ignore[typeddict-item]
    install(spark, **said)
    source = spark.readStream.format("offramp").option("address", given.address)
    records = source.option("subscription", given.subscription).options(**options).options(**proof).load()
    df = transform(records) if transform else as_they_are(records, given.sink)
    query = write(df, given, proof)
    reporter = Reporter(sys.stdout, quiet=given.quiet)
    reporter.started(given.subscription, given.sink)
    while not stop.is_set() and not query.awaitTermination(timeout=_LOOK):
        reporter.show(query.recentProgress)
    if query.isActive:
        finish_batch(query, time.monotonic() + given.grace)
        query.stop()
    if (failure := query.exception()) is not None:
        # Its last batch, while it was waited for.
        raise failure
    reporter.show(query.recentProgress)
    flush(query, **said)
    reporter.ended()
    return 0


def finish_batch(query: StreamingQuery, ends: float) -> None:
    """Wait until the batch at work is done, at the latest until `ends`, on the monotonic clock.

    Spark cancels the batch at work when it stops a query. It comes again then, but into a sink that is not idempotent a
    part of it goes twice. Under a backlog the next batch begins at once, so that one is hardly ever seen between two:
    a progress that was not there before is just as good a sign.
    """
    before = query.lastProgress
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < ends:
        now = query.lastProgress
        if now is not None and (before is None or now.batchId != before.batchId):
            return
        time.sleep(_LAST_LOOKS)


def proof_of(given: argparse.Namespace, options: Mapping[str, str]) -> dict[str, str]:
    """Who this is, for all that calls a sidecar: the source, the listener and the sink. By options of the source, or by
    arguments, which go first."""
    by_lower = {name.lower(): name for name in _PROOF}
    proof = {by_lower[name.lower()]: value for name, value in options.items() if name.lower() in by_lower}
    arguments = {"token": given.token, "tokenFile": given.token_file, "ca": given.ca}
    return proof | {name: value for name, value in arguments.items() if value}


def as_they_are(records: DataFrame, sink: str) -> DataFrame:
    """Records for a sink without a transformation. A topic takes what a record is; where it stood, and when, is for the
    topic to say. A table has no column for what is itself a list."""
    match sink:
        case "offramp":
            return records.select("key", "value", "headers")
        case "jdbc":
            return records.withColumn("headers", to_json("headers"))
        case _:
            return records


def write(df: DataFrame, given: argparse.Namespace, proof: dict[str, str]) -> StreamingQuery:
    """Start the query into the sink that was chosen."""
    writer: DataStreamWriter = df.writeStream.queryName(given.name or given.subscription).outputMode(given.mode)
    writer = writer.option("checkpointLocation", given.checkpoint)
    writer = writer.trigger(availableNow=True) if given.available_now else writer.trigger(processingTime=given.every)
    match given.sink:
        case "parquet":
            return writer.format("parquet").option("path", given.path).start()
        case "console":
            return writer.format("console").option("truncate", "false").option("numRows", str(given.rows)).start()
        case "offramp":
            return publishing(writer, given).options(**proof).start()
        case _:
            return writer.foreachBatch(jdbc(given)).start()


def publishing(writer: DataStreamWriter, given: argparse.Namespace) -> DataStreamWriter:
    writer = writer.format("offramp").option("address", given.to or given.address).option("topic", given.topic)
    return writer.option("broker", given.broker) if given.broker else writer.option("subscription", given.subscription)


def jdbc(given: argparse.Namespace) -> Callable[[DataFrame, int], None]:
    """Writes each batch with its id in the column `batch_id`, by which what was written twice can be told."""
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
    # Our lines are the progress; a bar would be drawn over them.
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if given.master:
        builder = builder.master(given.master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def load(name: str) -> Transform:
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
        raise BadOption(f'--transform: {module} has no function "{function}".{nearest(function, names)}')
    transform: Transform = getattr(found, function)
    return transform


def pairs(argument: str, given: Sequence[str]) -> dict[str, str]:
    """Raises `BadOption`."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise BadOption(f'{argument}: "{text}" is not name=value')
        found[name] = value
    return found


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="python -m spark_bridge",
        description="Reads a subscription of an Offramp sidecar with Spark and writes it to a sink, exactly where it "
        "stopped when it is started again. Ctrl-C and SIGTERM stop it in order.",
    )
    whole.add_argument("--address", required=True, help="the sidecar: host:port, or unix:/path on one machine")
    whole.add_argument("--subscription", required=True, help="a subscription of the sidecar with mode: ranges")
    whole.add_argument("--checkpoint", required=True, metavar="FOLDER", help="where the query keeps its place")
    whole.add_argument("--transform", metavar="MODULE:FUNCTION", help="a function from DataFrame to DataFrame")
    whole.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a further option of the source; what proves who this is (certificate, key, serverName) also counts for "
        "commits and for the sink offramp",
    )
    whole.add_argument(
        "--grace",
        type=float,
        default=_GRACE,
        metavar="SECONDS",
        help=f"for the batch at work on a signal, before it is cancelled (default: {_GRACE:g})",
    )
    whole.add_argument("--available-now", action="store_true", help="do what is there, then end")
    whole.add_argument("--every", default="1 second", metavar="TIME", help="time between batches (default: 1 second)")
    whole.add_argument("--mode", default="append", choices=("append", "update", "complete"), help="the output mode")
    whole.add_argument("--name", help="the query's name (default: the subscription's)")
    whole.add_argument("--master", help="Spark's master, as in local[2] (default: as spark-submit says)")
    whole.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting")
    whole.add_argument("--token", help="for a sidecar beyond loopback (better: OFFRAMP_TOKEN in the environment)")
    whole.add_argument("--token-file", metavar="FILE", help="the same from a file, here and on the executors")
    whole.add_argument("--ca", metavar="FILE", help="whom to trust over TLS: a PEM file")
    whole.add_argument("--quiet", action="store_true", help="print no progress")
    sinks = whole.add_subparsers(dest="sink", required=True, metavar="SINK")
    sinks.add_parser("parquet", help="files in a folder").add_argument("path", help="the folder")
    console = sinks.add_parser("console", help="the terminal")
    console.add_argument("--rows", type=int, default=20, help="rows shown of each batch")
    database = sinks.add_parser("jdbc", help="a table; the password comes from JDBC_PASSWORD in the environment")
    database.add_argument("url", help="as in jdbc:postgresql://host/database")
    database.add_argument("table")
    database.add_argument("--user")
    database.add_argument("--driver", help="the class of the driver, if Spark cannot tell it from the URL")
    topic = sinks.add_parser("offramp", help="a topic, through a sidecar")
    topic.add_argument("topic")
    topic.add_argument("--to", metavar="ADDRESS", help="another sidecar than the one that is read from")
    topic.add_argument("--broker", help="a broker by its name (default: that of the subscription)")
    return whole
