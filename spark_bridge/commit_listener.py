"""Commits as queries progress.

Spark tells a source that batch N is done only when it builds batch N+1, which may be an hour later, or never: the
sidecar would show a lag that does not exist, and the broker would keep records that nobody needs. A query's progress
comes as soon as the batch is done. The checkpoint remains the truth: the next commit covers one that is missed here.
"""

import logging
import threading
from typing import Unpack
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from offramp.channel import Access, ProofOptions
from spark_bridge.datasource import OfframpDataSource
from spark_bridge.errors import BadOption, Replaced
from spark_bridge.log_client import LogClient
from spark_bridge.progress import SourceProgress, source_progress

logger = logging.getLogger("offramp.spark")

#: seconds that a commit may take, retries included; the next one covers one that fails
_COMMIT_TIMEOUT = 15.0


def install(spark: SparkSession, **proof: Unpack[ProofOptions]) -> "Committer":
    """Registers `format("offramp")` with a session that has not found it by itself, and commits as queries progress.

    `token`, `token_file`, `ca` and so on are the credentials for commits to a sidecar beyond loopback; without them
    they come from the environment (see `offramp.channel`). May be called again, to change them. Raises `BadOption` if a
    file cannot be used.
    """
    try:
        # The address comes with each query's progress, but the credentials can be checked now.
        Access(**proof)
    except ValueError as error:
        raise BadOption(f"option {error}") from error
    _register(spark)
    before = _installed.pop(spark, None)
    if before is not None:
        spark.streams.removeListener(before)
        before.close()
    committer = _installed[spark] = Committer(**proof)
    spark.streams.addListener(committer)
    return committer


def flush(query: StreamingQuery, **proof: Unpack[ProofOptions]) -> None:
    """Commits what a query has done, before this returns. For the end of a run with the trigger availableNow, whose
    last progress may not have reached the listener when the query ends.

    Raises `Replaced` if another query reads the subscription now, `Unavailable` if the sidecar cannot be reached, and
    `DataLoss` for positions that do not exist, unless the query has failOnDataLoss=false.
    """
    for progress in reversed(query.recentProgress):
        sources = source_progress(progress["sources"])
        for one in sources:
            _commit(one, proof)
        if sources:
            return


def _register(spark: SparkSession) -> None:
    try:
        spark.dataSource.register(OfframpDataSource)
    except AnalysisException as error:
        # Spark has found it by itself: see `pyspark_offramp`.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


class Committer(StreamingQueryListener):
    """Commits the progress of all queries of a session, in its own thread, so that it does not block Spark's."""

    def __init__(self, **proof: Unpack[ProofOptions]) -> None:
        self._proof = proof
        self._changed = threading.Condition()
        #: the newest progress of each address and subscription that is not committed yet
        self._pending: dict[tuple[str, str], SourceProgress] = {}
        self._closed = False
        self._thread: threading.Thread | None = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to commit yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        with self._changed:
            for one in source_progress(event.progress.sources):
                self._pending[one.address, one.subscription] = one
            if self._pending and self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="offramp-commits", daemon=True)
                self._thread.start()
            self._changed.notify()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to commit since the last progress."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The last progress had everything to commit."""

    def close(self) -> None:
        """Commits what is pending, then ends the thread. Returns at once."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._pending:
                    if self._closed:
                        return
                    self._changed.wait()
                # The oldest first, so that a sidecar that does not answer delays each of the others only once.
                one = self._pending.pop(next(iter(self._pending)))
            try:
                _commit(one, self._proof)
            except Replaced as error:
                logger.warning("%s: not committed, the query was replaced: %s", one.subscription, error)
            except Exception as error:
                # Any error, such as a token file that is being rotated: without this thread nothing is committed.
                logger.warning("%s: cannot commit now, the next progress will: %s", one.subscription, error)


def _commit(one: SourceProgress, proof: ProofOptions) -> None:
    with LogClient(Access(address=one.address, **proof), one.subscription, _COMMIT_TIMEOUT) as client:
        client.commit(one.token, one.positions, skip_missing=one.skip_missing)


#: the listener of each session
_installed: "WeakKeyDictionary[SparkSession, Committer]" = WeakKeyDictionary()
