"""Committing as queries progress.

Spark tells a source that batch N is done only when it builds batch N+1, which may be an hour later, or never. So the
sidecar would show a lag that is not there, and a broker would keep what nobody needs. Progress comes when the batch is
done. The checkpoint remains the truth: a commit that is missed here is made up for by the next one.
"""

import logging
import threading
from typing import Unpack
from weakref import WeakKeyDictionary

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
from spark_bridge.control import Control
from spark_bridge.datasource import OfframpDataSource
from spark_bridge.errors import BadOption, Replaced
from spark_bridge.progress import Done, done

logger = logging.getLogger("offramp.spark")

#: seconds for a commit. One that fails is no loss
_TIMEOUT = 15.0


def install(spark: SparkSession, **proof: Unpack[ProofOptions]) -> "Committer":
    """Make `format("offramp")` known to a session, and commit as its queries progress.

    `token`, `token_file`, `ca` and so on prove who commits to a sidecar beyond loopback; without them the environment
    is asked (see `offramp.channel`). May be called again, to change them. Raises `BadOption` if a file of theirs cannot
    be used.
    """
    try:
        # Where to is in the progress of each query; that the proof is one can be seen now.
        Access(**proof)
    except ValueError as error:
        raise BadOption(f"option {error}") from error
    spark.dataSource.register(OfframpDataSource)
    before = _installed.pop(spark, None)
    if before is not None:
        spark.streams.removeListener(before)
        before.close()
    committer = _installed[spark] = Committer(**proof)
    spark.streams.addListener(committer)
    return committer


def flush(query: StreamingQuery, **proof: Unpack[ProofOptions]) -> None:
    """Commit what a query has done, before this returns. For the end of a run with the trigger availableNow, whose last
    progress may not have reached the listener when the query ends.

    Raises `Replaced` if another query reads the subscription now, `Unavailable` if the sidecar cannot be reached, and
    `DataLoss` for positions that are not there, unless the query has failOnDataLoss=false.
    """
    for progress in reversed(query.recentProgress):
        finished = done(progress["sources"])
        for one in finished:
            _commit(one, proof)
        if finished:
            return


class Committer(StreamingQueryListener):
    """Commits the progress of all queries of a session, in a thread of its own: Spark's thread is not held up."""

    def __init__(self, **proof: Unpack[ProofOptions]) -> None:
        self._proof = proof
        self._changed = threading.Condition()
        #: the newest of each subscription that is not committed yet
        self._waiting: dict[tuple[str, str], Done] = {}
        self._closed = False
        self._thread: threading.Thread | None = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is done yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        with self._changed:
            for one in done(event.progress.sources):
                self._waiting[one.address, one.subscription] = one
            if self._waiting and self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="offramp-commits", daemon=True)
                self._thread.start()
            self._changed.notify()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing was done since."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """What it did was in its last progress."""

    def close(self) -> None:
        """Commit what waits, and end. Returns at once."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._closed:
                        return
                    self._changed.wait()
                # The oldest: a sidecar that does not answer must not keep the others waiting more than once.
                one = self._waiting.pop(next(iter(self._waiting)))
            try:
                _commit(one, self._proof)
            except Replaced as error:
                logger.warning("%s: a query that was replaced has not committed: %s", one.subscription, error)
            except Exception as error:
                # Whatever it is, as a token file that is just being rotated: without this thread nothing is committed.
                logger.warning("%s: cannot commit now, the next progress will: %s", one.subscription, error)


def _commit(one: Done, proof: ProofOptions) -> None:
    with Control(Access(address=one.address, **proof), one.subscription, _TIMEOUT) as control:
        (control.commit_what_is_there if one.skips else control.commit)(one.token, one.positions)


#: sessions and their listeners
_installed: "WeakKeyDictionary[SparkSession, Committer]" = WeakKeyDictionary()
