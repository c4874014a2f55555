"""Off the pod: executors reach a sidecar over TLS, with a token that has no right but the one for ranges."""

import pickle
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from offramp.errors import Forbidden, Unavailable
from spark_bridge.bounded_readers import DeadLetterReader
from spark_bridge.columns import DEAD_LETTER_SCHEMA, SCHEMA
from spark_bridge.options import BOUNDED, Options
from spark_bridge.stream_reader import StreamReader
from tests.e2e.harness import eventually
from tests.security.kit import TOKENS, Secured
from tests.spark.environment import reject_what_is_bad, secured_options

RANGED = {"orders": {"topics": ["orders"], "mode": "ranges"}}


def test_a_stream_is_read_with_a_token_for_ranges_and_nothing_more(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar(subscriptions=RANGED) as sidecar:
        sidecar.publish("orders", [b"%d" % n for n in range(20)])
        options = secured_options(secured, sidecar, "orders", token=TOKENS["spark"])
        source = StreamReader(options, SCHEMA)
        start = source.initialOffset()
        end = source.latestOffset(start, ReadAllAvailable())
        # What is sent to executors has all it needs, the authority's certificate included.
        remote, ranges = pickle.loads(pickle.dumps((source._reader, source.partitions(start, end))))
        secured.authority.certificate.rename(tmp_path / "elsewhere")
        values = {row["value"] for one in ranges for batch in remote.read(one) for row in batch.to_pylist()}
        assert values == {b"%d" % n for n in range(20)}
        source.commit(end)
        source.stop()
        (tmp_path / "elsewhere").rename(secured.authority.certificate)
        with pytest.raises(Forbidden):
            StreamReader({**options, "token": TOKENS["app"]}, SCHEMA).initialOffset()
        with pytest.raises(Forbidden):
            StreamReader({**options, "token": "not-a-token-of-anybody"}, SCHEMA).initialOffset()
        with pytest.raises(Unavailable):
            StreamReader({**options, "serverName": "somebody-else", "timeout": "300ms"}, SCHEMA).initialOffset()


def test_dead_letters_need_no_right_but_the_one_for_ranges(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar:
        sidecar.publish("orders", [b"good", b"bad"])
        reject_what_is_bad("orders", sidecar.target, records=2)
        given = secured_options(secured, sidecar, "orders", token=TOKENS["spark"], deadLetters="true")
        reader = DeadLetterReader(Options(given, BOUNDED, "a bounded read"), DEAD_LETTER_SCHEMA)

        def reasons() -> list[tuple[bytes, str]]:
            rows = [row for one in reader.partitions() for batch in reader.read(one) for row in batch.to_pylist()]
            return [(row["value"], row["reason"]) for row in rows]

        assert eventually(reasons, "it is written") == [(b"bad", "REJECTED: it is bad")]
