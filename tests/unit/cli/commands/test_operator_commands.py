"""Commands that inspect and operate a sidecar."""

import json

import grpc
import pytest

from offramp.v1 import admin_pb2 as admin
from offramp.v1 import record_pb2 as record
from sidecar import cli
from tests.unit.cli.fake_sidecar import FakeSidecar


def busy() -> admin.Status:
    """A sidecar with one subscription that has a bit of everything."""
    lanes = [
        admin.LaneStatus(
            topic="orders",
            lane=0,
            committed=100,
            fetched=150,
            end=5100,
            lag=5000,
            in_flight_records=50,
            oldest_position=101,
            oldest_ms=61_000,
            oldest_with="web-1",
        ),
        admin.LaneStatus(topic="orders", lane=1, committed=7, fetched=7, end=-1, lag=-1, held_by="the window is full"),
        admin.LaneStatus(topic="orders.offramp.retry", lane=0, committed=1, end=4, lag=3, parked=True),
    ]
    session = admin.SessionStatus(
        session=b"\x01" * 16, name="web-1", language="php", pid=77, leases=1, age_ms=90_000, oldest_lease_ms=12_000
    )
    orders = admin.SubscriptionStatus(
        name="orders", broker="local", group="orders", topics=["orders"], order="ORDER_NONE",
        state=admin.SUBSCRIPTION_STATE_RUNNING, lanes=lanes, sessions=[session], leases=1, in_flight_records=50,
        waiting_records=3, buffered_bytes=1 << 20, buffered_bytes_limit=64 << 20, buffered_records=2000,
        oldest_unsettled_ms=1234, would_be_replayed=60, trouble=["commits fail: the disk is full"],
        counters=admin.Counters(fetched=2000, delivered=1500, acked=1400, dead_lettered=2),
    )  # fmt: skip
    broker = admin.BrokerStatus(name="local", type="local", facts={"folder": "/data"}, trouble="no room")
    return admin.Status(version="9.9", boot=b"\xab\xcd", uptime_ms=192_000, subscriptions=[orders], brokers=[broker])


def test_status_shows_trouble_first_and_then_everything(
    sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    sidecar.admin.status = busy()
    assert cli.main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"offramp 9.9 at {sidecar.address}, up 3m12s"
    assert lines[1:3] == ["! broker local: no room", "! orders: commits fail: the disk is full"]
    assert lines[4] == "orders: running; orders on local, group orders, order none"
    text = "\n".join(lines)
    assert "in flight: 50 records in 1 lease" in text
    assert "would be replayed: 60" in text
    assert "in memory: 2,000, 1.0 MiB of 64.0 MiB" in text
    table = [line.split() for line in lines if line.startswith("  orders")]
    assert table[0] == ["orders/0", "100", "5100", "5000", "0", "50", "0", "0", "1m01s", "at", "101", "with", "web-1"]
    assert table[1] == ["orders/1", "7", "?", "?", "0", "0", "0", "0", "-", "the", "window", "is", "full"]
    assert table[2][:3] == ["orders.offramp.retry/0", "(retry)", "1"]
    assert "  web-1   php" in text
    assert "77       1          0       12s" in text
    assert "since the start: fetched 2,000, delivered 1,500, acked 1,400, dead lettered 2" in text
    assert lines[-1] == "broker local: local, folder /data"


def test_status_marks_a_worker_that_lost_its_connection(
    sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    sidecar.admin.status = busy()
    sidecar.admin.status.subscriptions[0].sessions[0].away_ms = 12_000
    assert cli.main(["status"]) == 0
    assert "away 12s" in capsys.readouterr().out


def read_by_ranges() -> admin.Status:
    lanes = [
        admin.LaneStatus(topic="clicks", lane=0, committed=100, end=5100, lag=5000),
        admin.LaneStatus(topic="clicks", lane=1, committed=-1, end=7, lag=7),
    ]
    clicks = admin.SubscriptionStatus(
        name="clicks", broker="local", group="clicks", topics=["clicks"], order="ORDER_NONE", mode="MODE_RANGES",
        state=admin.SUBSCRIPTION_STATE_RUNNING, lanes=lanes, counters=admin.Counters(delivered=1500, commits=3),
        reader=admin.ReaderStatus(name="sessions", token=77, age_ms=192_000),
    )  # fmt: skip
    return admin.Status(version="9.9", boot=b"\xab", subscriptions=[clicks])


def test_status_shows_the_reader_of_ranges_and_how_far_it_has_come(
    sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    sidecar.admin.status = read_by_ranges()
    assert cli.main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "clicks: running; clicks on local, group clicks, by ranges" in lines
    assert "  reader: sessions, attached 3m12s ago, token 77" in lines
    table = [line.split() for line in lines if line.startswith("  clicks/")]
    assert table == [["clicks/0", "100", "5100", "5000"], ["clicks/1", "none", "7", "7"]]
    assert "  since the start: delivered 1,500, commits 3" in lines
    assert not any("worker" in line for line in lines)


def test_status_says_that_nobody_reads(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    sidecar.admin.status = read_by_ranges()
    sidecar.admin.status.subscriptions[0].ClearField("reader")
    assert cli.main(["status"]) == 0
    assert "  reader: none has attached yet" in capsys.readouterr().out


def test_status_of_one_subscription_asks_for_that_one(sidecar: FakeSidecar) -> None:
    assert cli.main(["status", "orders"]) == 0
    assert sidecar.admin.requests == [admin.GetStatusRequest(subscription="orders")]


def test_status_as_json_has_numbers_words_and_every_field(
    sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    sidecar.admin.status = busy()
    assert cli.main(["status", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    orders = status["subscriptions"][0]
    assert (status["boot"], status["uptime_ms"], status["draining"]) == ("abcd", 192_000, False)
    assert (orders["state"], orders["would_be_replayed"], orders["counters"]["nacked"]) == ("running", 60, 0)
    assert (orders["lanes"][1]["lag"], orders["lanes"][2]["parked"]) == (-1, True)
    assert status["brokers"][0]["facts"] == {"folder": "/data"}


def test_status_says_so_when_there_is_nothing(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    sidecar.admin.status = admin.Status(version="1", subscriptions=[admin.SubscriptionStatus(name="idle")])
    assert cli.main(["status"]) == 0
    out = capsys.readouterr().out
    assert "no worker is connected" in out
    assert "since the start: nothing" in out


@pytest.mark.parametrize(
    ("code", "details", "said"),
    [
        (
            grpc.StatusCode.NOT_FOUND,
            'there is no subscription "x"; there are: y',
            'there is no subscription "x"; there are: y',
        ),
        (grpc.StatusCode.UNIMPLEMENTED, "", "does not know this call; is it another version?"),
        (grpc.StatusCode.UNAVAILABLE, "stopping", "is stopping or gone: stopping"),
        (grpc.StatusCode.INTERNAL, "two\nlines", "two lines"),
        (grpc.StatusCode.UNKNOWN, "", "no reason given"),
    ],
)
def test_what_the_sidecar_says_becomes_one_line(
    sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str], code: grpc.StatusCode, details: str, said: str
) -> None:
    sidecar.admin.error = (code, details)
    assert cli.main(["status"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("offramp: ")
    assert err.endswith(f"{said}\n")
    assert err.count("\n") == 1


def test_pause_and_resume_name_the_subscription(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pause", "orders", "--reason", "closed"]) == 0
    assert cli.main(["resume", "orders"]) == 0
    assert sidecar.admin.requests == [
        admin.PauseRequest(subscription="orders", reason="closed"),
        admin.ResumeRequest(subscription="orders"),
    ]
    assert capsys.readouterr().out == "orders is paused\norders is resumed\n"


@pytest.mark.parametrize(
    ("to", "request_"),
    [
        (["--start"], admin.SeekRequest(start=admin.SeekStart())),
        (["--end"], admin.SeekRequest(end=admin.SeekEnd())),
        (["--position", "0"], admin.SeekRequest(position=0)),
        (["--time", "1970-01-01T00:00:01Z"], admin.SeekRequest(timestamp_ms=1000)),
        (["--time", "1970-01-01T01:00:01+01:00"], admin.SeekRequest(timestamp_ms=1000)),
        (["--time", "1970-01-02"], admin.SeekRequest(timestamp_ms=86_400_000)),
        (["--end", "--topic", "orders", "--lane", "0"], admin.SeekRequest(topic="orders", lane=0, end=admin.SeekEnd())),
    ],
)
def test_seek_says_where_to_and_shows_where_it_went(
    sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str], to: list[str], request_: admin.SeekRequest
) -> None:
    assert cli.main(["seek", "orders", *to]) == 0
    request_.subscription = "orders"
    assert sidecar.admin.requests == [request_]
    assert capsys.readouterr().out == "lane      position\norders/1         7\n"


def test_seek_by_age_counts_back_from_now(sidecar: FakeSidecar) -> None:
    assert cli.main(["seek", "orders", "--ago", "1h"]) == 0
    assert cli.main(["seek", "orders", "--ago", "0"]) == 0
    earlier, now = (request.timestamp_ms for request in sidecar.admin.requests)
    assert now - earlier == pytest.approx(3_600_000, abs=60_000)


def test_delete_group_names_broker_and_group(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["delete-group", "old"]) == 0
    assert sidecar.admin.requests == [admin.DeleteGroupRequest(broker="local", group="old")]
    assert capsys.readouterr().out == "group old of local is deleted\n"


def letter(position: int, value: bytes = b"x") -> admin.DeadLetter:
    return admin.DeadLetter(
        id=f"orders/0/{position}", topic="orders", position=position, reason="no such\ncustomer", attempts=5,
        worker="web-1", dead_lettered_ms=1_700_000_000_000,
        record=record.Record(key=b"k", value=value, headers=[record.Header(name="h", value=b"\xff")]),
    )  # fmt: skip


def test_dead_letters_are_listed_one_a_line(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    sidecar.admin.dead_letters = [letter(1), letter(2), letter(3)]
    assert cli.main(["dead-letters", "orders", "--limit", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "id          when                  attempts  worker  reason",
        "orders/0/1  2023-11-14T22:13:20Z         5  web-1   no such customer",
        "orders/0/2  2023-11-14T22:13:20Z         5  web-1   no such customer",
        "(there are more: --limit shows them at once, --page 2 the next ones)",
    ]
    assert sidecar.admin.requests[0].without_payload
    assert cli.main(["dead-letters", "orders", "--limit", "2", "--page", "2", "--json"]) == 0
    captured = capsys.readouterr()
    assert (json.loads(captured.out)["id"], captured.err) == ("orders/0/3", "")


def test_dead_letters_are_chosen_by_reason_and_time(sidecar: FakeSidecar) -> None:
    chosen = ["--reason", "timeout", "--since", "2023-11-14T22:13:20Z", "--until", "2023-11-15"]
    assert cli.main(["dead-letters", "orders", *chosen]) == 0
    assert cli.main(["redrive", "orders", "--all", *chosen]) == 0
    assert cli.main(["delete-dead-letters", "orders", "--all", *chosen]) == 0
    expected = admin.DeadLetterFilter(reason="timeout", since_ms=1_700_000_000_000, until_ms=1_700_006_400_000)
    assert [request.filter for request in sidecar.admin.requests] == [expected] * 3


def test_a_dead_letter_is_shown_as_a_whole(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    sidecar.admin.dead_letters = [letter(1), letter(2, b"\xff")]
    assert cli.main(["dead-letters", "orders", "--id", "orders/0/2"]) == 0
    out = capsys.readouterr().out
    assert 'key           "k"' in out
    assert 'value_base64  "/w=="' in out
    assert 'header        {"name":"h","value_base64":"/w=="}' in out


def test_dead_letters_as_json_are_whole(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    sidecar.admin.dead_letters = [letter(1), letter(2)]
    assert cli.main(["dead-letters", "orders", "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["id"], first["key"], first["value"]) == ("orders/0/1", "k", "x")
    assert second["reason"] == "no such\ncustomer"


def test_no_dead_letters_is_good_news_but_a_missing_one_is_not(
    sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["dead-letters", "orders"]) == 0
    assert capsys.readouterr().out == "orders has no dead letters\n"
    assert cli.main(["dead-letters", "orders", "--id", "orders/0/9"]) == 1
    assert capsys.readouterr().err == "offramp: orders has no dead letter orders/0/9\n"


def test_redrive_sends_back_those_that_are_named_or_all(
    sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    sidecar.admin.dead_letters = [letter(1), letter(2)]
    assert cli.main(["redrive", "orders", "--id", "orders/0/1", "--id", "orders/0/1"]) == 0
    assert cli.main(["redrive", "orders", "--all"]) == 0
    assert capsys.readouterr().out == "1 dead letter of orders sent back\n2 dead letters of orders sent back\n"


def test_redrive_says_how_many_it_left_out(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    before = letter(1)
    before.redriven = True
    sidecar.admin.dead_letters = [before, letter(2)]
    assert cli.main(["redrive", "orders", "--all"]) == 0
    assert cli.main(["redrive", "orders", "--all", "--again"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 dead letter of orders sent back (1 left out that were sent back before: --again)",
        "2 dead letters of orders sent back",
    ]
    assert cli.main(["dead-letters", "orders"]) == 0
    assert "web-1   (redriven) no such customer" in capsys.readouterr().out


def test_dead_letters_are_deleted_by_id_or_all(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    sidecar.admin.dead_letters = [letter(1), letter(2)]
    assert cli.main(["delete-dead-letters", "orders", "--all"]) == 0
    assert cli.main(["delete-dead-letters", "orders", "--id", "orders/0/9"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "2 dead letters of orders deleted\n0 dead letters of orders deleted\n"
    assert "orders/0/9 is not among its dead letters" in captured.err


def test_redrive_of_one_that_is_not_there_fails(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    sidecar.admin.dead_letters = [letter(1)]
    assert cli.main(["redrive", "orders", "--id", "orders/0/1", "--id", "orders/0/9"]) == 1
    assert "of these ids 1 are not among its dead letters" in capsys.readouterr().err
    assert cli.main(["redrive", "orders", "--id", "orders/0/9"]) == 1
    assert "orders/0/9 is not among its dead letters" in capsys.readouterr().err
