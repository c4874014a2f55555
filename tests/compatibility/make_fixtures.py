"""Makes the fixtures of a release. Run it with the code of that older release, not with today's:

    cd CHECKOUT_OF_THE_RELEASE
    PYTHONPATH=.:clients/python .venv/bin/python HERE/make_fixtures.py HERE/e9f74a6

It starts the release's sidecar on an empty directory, consumes as a client, stops it and keeps the database. What the
release stores in brokers that are servers is made by its own functions; modules are imported under the names that they
had then. `offramp.yaml` in the folder is written by hand; this script only reads it.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
import yaml

from offramp.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    consumer_pb2,
    consumer_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
    publish_pb2,
    publish_pb2_grpc,
    record_pb2,
)

WALL_MS = 1_700_000_000_000
#: longer than this script takes, and past whenever a test runs
DUE_AFTER_MS = 30_000
CONFIG = """
listen: {{socket: {socket}}}
http: {{address: ""}}
drain: {{deadline: 1s}}
brokers:
  local: {{type: local, directory: {directory}, lanes: 2, reserve_bytes: 1MiB, ephemeral: true}}
subscriptions:
  shop:
    topics: [orders]
    batch: {{records: 1}}
    retry: {{first: 10ms, max: 10ms, attempts: 20}}
    outage: {{enabled: false}}
    parking: {{after: 1s, lanes: 2}}
  audit: {{topics: [orders], batch: {{records: 1}}, order: lane}}
  spark: {{topics: [orders], mode: ranges}}
"""


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        status = play(Path(scratch))
        data = Path(scratch, "data")
        assert not data.joinpath("offramp.db-wal").exists(), "the sidecar has not closed its database"
        shutil.copyfile(data / "offramp.db", folder / "offramp.db")
        save(folder / "database.json", database(data / "offramp.db"))
    save(folder / "retry_topic.json", retry_topic())
    save(folder / "dead_letter_topic.json", dead_letter_topic())
    save(folder / "kafka.json", kafka())
    save(folder / "pulsar.json", pulsar())
    save(folder / "spark.json", spark())
    save(folder / "names.json", names() | {"status": sorted(leaves(status))})
    shown = run("lint", "-c", str(folder / "offramp.yaml"), "--show")
    folder.joinpath("offramp.shown.yaml").write_text(shown)
    known, default = leaves(yaml.safe_load(shown)), leaves(yaml.safe_load(run("lint", "--example")))
    same = [key for key, value in default.items() if known.get(key, value) == value]
    assert same == ["clients", "brokers.local.type", "subscriptions.orders.mode"], f"{same} are not given"


def save(file: Path, found: Any) -> None:
    """One line for each entry of the outer two levels."""
    lines = []
    for key, value in found.items():
        if isinstance(value, dict) and value:
            inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def run(*args: str) -> str:
    return subprocess.run([sys.executable, "-m", "sidecar", *args], check=True, capture_output=True, text=True).stdout


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """The values of nested dictionaries by their paths; of a list of dictionaries, those of the first."""
    if isinstance(tree, list) and tree and isinstance(tree[0], dict):
        return leaves(tree[0], f"{path}[]")
    if not isinstance(tree, dict) or not tree:
        return {path.removeprefix("."): tree}
    return {key: value for name, one in tree.items() for key, value in leaves(one, f"{path}.{name}").items()}


# The embedded broker: a sidecar of the release does it all.


@contextmanager
def sidecar(scratch: Path) -> Iterator[grpc.Channel]:
    socket, config = scratch / "s.sock", scratch / "offramp.yaml"
    config.write_text(CONFIG.format(socket=socket, directory=scratch / "data"))
    process = subprocess.Popen([sys.executable, "-m", "sidecar", "run", "-c", str(config)])
    try:
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            grpc.channel_ready_future(channel).result(30)
            yield channel
    finally:
        process.terminate()
        process.wait(60)


def play(scratch: Path) -> dict[str, Any]:
    """See `shop` for what becomes of each record: acked, rejected, parked, or left in the hands of the worker."""
    with sidecar(scratch) as channel:
        publisher = publish_pb2_grpc.PublishServiceStub(channel)
        admin = admin_pb2_grpc.AdminServiceStub(channel)
        publisher.Publish(publish_pb2.PublishRequest(broker="local", topic="orders", messages=list(messages())))
        work(channel, "shop", shop)
        work(channel, "audit", lambda record: ack() if (record.lane, record.position) in ((0, 0), (0, 1)) else None)
        read_ranges(channel)
        client = consumer_pb2.Client(name="fixture", language="python")
        session = consumer_pb2_grpc.ConsumerServiceStub(channel).Open(
            consumer_pb2.OpenRequest(subscription="shop", client=client)
        )
        assert next(session).welcome.session
        time.sleep(1)  # commits and writes to the retry topic are done by then
        status: dict[str, Any] = json.loads(run("status", "--json", "--address", f"unix:{scratch}/s.sock"))
        letters = [
            letter.id
            for response in admin.ListDeadLetters(admin_pb2.ListDeadLettersRequest(subscription="shop"))
            for letter in response.dead_letters
        ]
        assert sorted(letters) == ["orders/0/4", "orders/0/5"], letters
    return status


def messages() -> Iterator[publish_pb2.Message]:
    for position in range(10):
        yield publish_pb2.Message(
            key=b"customer-%d" % (position % 3),
            value=b"order %d" % position,
            headers=[record_pb2.Header(name="trace", value=b"\x00\xff"), record_pb2.Header(name="nothing")],
            lane=0,
        )
    yield publish_pb2.Message(lane=1)
    for position in range(1, 6):
        yield publish_pb2.Message(value=b"x" * position, lane=1)


def ack() -> record_pb2.Settlement:
    return record_pb2.Settlement(outcome=record_pb2.OUTCOME_ACK)


def shop(record: record_pb2.Record, attempt: int = 1) -> record_pb2.Settlement | None:
    match record.lane, record.position:
        case 0, 3 | 6 | 9:
            return None
        case 0, 4 | 5:
            return record_pb2.Settlement(outcome=record_pb2.OUTCOME_REJECT, reason=f"no customer {record.position}")
        case (0, 7) | (1, 0) if attempt < 3:
            return record_pb2.Settlement(outcome=record_pb2.OUTCOME_NACK, reason="busy")
        case (0, 7) | (1, 0):
            return record_pb2.Settlement(outcome=record_pb2.OUTCOME_NACK, reason="closed", retry_after_ms=DUE_AFTER_MS)
        case _:
            return ack()


def work(channel: grpc.Channel, subscription: str, handle: Any) -> None:
    """Takes and settles batches of one record until no more come. Leases are too long to expire meanwhile."""
    stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
    client = consumer_pb2.Client(name="fixture")
    while True:
        request = consumer_pb2.FetchRequest(
            subscription=subscription, client=client, wait_ms=500, lease_ms=600_000, want=consumer_pb2.Credit(batches=1)
        )
        batches = stub.Fetch(request).batches
        if not batches:
            return
        for batch in batches:
            (record,) = batch.records
            attempt = batch.redeliveries[0].attempt if batch.redeliveries else 1
            settlement = handle(record, attempt) if handle is shop else handle(record)
            if settlement is not None:
                settlement.lease = batch.lease
                (result,) = stub.Settle(consumer_pb2.SettleRequest(settlements=[settlement])).results
                assert result.status == record_pb2.SETTLE_STATUS_SETTLED, result


def read_ranges(channel: grpc.Channel) -> None:
    stub = log_pb2_grpc.LogServiceStub(channel)
    token = stub.Attach(log_pb2.AttachRequest(subscription="spark", reader="clicks per minute")).token
    start = log_pb2.StartEarliest()
    stub.ResolveStart(log_pb2.ResolveStartRequest(subscription="spark", token=token, earliest=start))
    at = [
        log_pb2.LanePosition(topic="orders", lane=0, position=4),
        log_pb2.LanePosition(topic="orders", lane=1, position=2),
    ]
    stub.CommitUpTo(log_pb2.CommitUpToRequest(subscription="spark", token=token, positions=at))


def database(path: Path) -> dict[str, Any]:
    """What the release itself reads from its database."""
    shutil.copytree(path.parent, copy := path.parent.parent / "copy", ignore=shutil.ignore_patterns("*.lock"))
    base = import_module("sidecar.brokers.base")
    broker_class = import_module("sidecar.brokers.local").LocalBroker
    options = import_module("sidecar.brokers.local.options").LocalOptions
    wire, letters = (import_module(f"sidecar.{name}") for name in ("wire", "dead_letters"))
    run_class = import_module("sidecar.model").Run
    settings = import_module("sidecar.settings").SubscriptionSettings

    async def read() -> dict[str, Any]:
        broker = broker_class(options(directory=str(copy), reserve_bytes=1 << 20))
        await broker.open()
        records, groups = {}, {}
        for topic in ("orders", "shop.offramp.retry", "shop.offramp.dead"):
            for lane, end in (await broker.lane_ends(topic)).items():
                frames = [
                    frame
                    async for chunk in broker.read(lane, run_class(end.start, end.end), 1 << 20)
                    for frame in chunk.frames
                ]
                records[str(lane)] = [record_of(wire.decode_frame(frame)) for frame in frames]
        for group in ("shop", "audit"):
            source = broker.subscribe(base.SourceSpec(group, ("orders",)))
            await source.open()
            polled = await source.poll(1000, 1 << 20, 1.0)
            assigned = [event for event in polled.events if isinstance(event, base.Assigned)]
            groups[group] = {
                str(event.lane): {"position": event.start, "settled": [list(one) for one in event.settled]}
                for event in assigned
            }
            await source.close()
        cursor = broker.cursor(base.SourceSpec("spark", ("orders",)))
        await cursor.open()
        standing = await cursor.look()
        ranges = {
            "positions": {str(lane): at for lane, at in standing.positions.items()},
            "token": standing.attached.token,
            "reader": standing.attached.reader,
            "since_ms": standing.attached.since_ms,
        }
        found = await letters.list_dead_letters(broker, settings(name="shop", topics=("orders",)))
        await broker.close()
        return {
            "records": records,
            "groups": groups,
            "ranges": ranges,
            "dead_letters": [
                {
                    "id": one.id,
                    "topic": one.topic,
                    "group": one.group,
                    "reason": one.reason,
                    "attempts": one.attempts,
                    "worker": one.worker,
                    "dead_lettered_ms": one.dead_lettered_ms,
                    "record": record_of(one.record),
                }
                for one in found
            ],
        }

    return asyncio.run(read())


def record_of(record: Any) -> dict[str, Any]:
    return {
        "key": hex_of(record.key),
        "value": hex_of(record.value),
        "headers": [[header.name, hex_of(header.value)] for header in record.headers],
        "lane": record.lane,
        "position": record.position,
        "timestamp_ms": record.timestamp_ms,
        "ref": record.ref.hex(),
    }


def hex_of(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


# What other brokers store, as the release writes it.


def span(history: Any, ref: bytes = b"") -> Any:
    """Record 41 of lane 3 of `orders`."""
    model, spans, wire = (import_module(f"sidecar.{name}") for name in ("model", "spans", "wire"))
    headers = (model.Header("trace", b"\x00\xff"), model.Header("nothing", None))
    frame = wire.encode_frame(b"customer-2", b"order 41", headers, 3, 41, WALL_MS - 60_000, ref)
    return spans.Span(None, model.Chunk(model.Lane("orders", 3), [41], [frame]), 0, 1, 41, history)


def message_of(message: Any) -> dict[str, Any]:
    return {
        "key": hex_of(message.key),
        "value": hex_of(message.value),
        "headers": [[header.name, hex_of(header.value)] for header in message.headers],
        "lane": message.lane,
    }


def retry_topic() -> dict[str, Any]:
    """At WALL_MS, which is 1,000 on the clock of the loop."""
    parking, history = import_module("sidecar.parking"), import_module("sidecar.spans").History
    failed = history(failures=4, strikes=3, deaths=2, doubtful=True, first_failed=970.0, company=8)
    return {
        "wall_ms": WALL_MS,
        "never failed": message_of(parking.park(span(history()), now=1000.0, due=1060.0, wall_ms=WALL_MS, lanes=8)),
        "failed": message_of(parking.park(span(failed, b"\x08\x01"), now=1000.0, due=4600.0, wall_ms=WALL_MS, lanes=8)),
        "redriven": message_of(parking.redriven(span(history()).chunk.frames[0], "orders", wall_ms=WALL_MS)),
    }


def dead_letter_topic() -> dict[str, Any]:
    letters, history = import_module("sidecar.dead_letters"), import_module("sidecar.spans").History
    failed = span(history(failures=5, strikes=5), b"\x08\x01")
    said = {"group": "shop", "reason": "no such customer: 17 €", "worker": "php-7"}
    return {"wall_ms": WALL_MS, "failed": message_of(letters.write(failed, wall_ms=WALL_MS, **said))}


def kafka() -> dict[str, Any]:
    metadata, model = import_module("sidecar.brokers.kafka.metadata"), import_module("sidecar.model")
    stamp = metadata.Stamp("5L6g3nShT-eMCtK--X86sw", "Zm9vYmFyYmF6cXV4MTIzNA")
    sets: dict[str, list[list[int]]] = {
        "nothing beyond": [],
        "some beyond": [[1001, 1004], [1005, 1006], [1000_000, 2_000_000]],
        "more beyond than fit": [[1001 + 3 * run, 1002 + 3 * run] for run in range(2000)],
    }
    commits = {}
    for name, runs in sets.items():
        text = metadata.encode(stamp, model.Commit(1000, tuple(model.Run(*run) for run in runs)))
        rides = len(metadata.decode(text, stamp, 1000, 1 << 40))
        commits[name] = {"text": text, "first": runs[:3], "runs": rides}
    return {"cluster": stamp.cluster, "topic_id": stamp.topic_id, "position": 1000, "commits": commits} | fences()


def fences() -> dict[str, Any]:
    fencing, cursor = import_module("sidecar.brokers.fencing"), import_module("sidecar.brokers.cursor")
    following = import_module("sidecar.tokens").following
    first = following(0, WALL_MS)
    second = following(first, WALL_MS)
    pinned = fencing.Fence(cursor.Attached(second, "clicks: per minute", WALL_MS), pinned=True)
    unpinned = fencing.Fence(cursor.Attached(first, "", WALL_MS), pinned=False)
    return {
        "fences": [
            {
                "text": fencing.encode(one),
                "token": one.attached.token,
                "reader": one.attached.reader,
                "since_ms": one.attached.since_ms,
                "pinned": one.pinned,
            }
            for one in (unpinned, pinned)
        ]
    }


def pulsar() -> dict[str, Any]:
    """The properties of a subscription whose reader is in the middle of a batch, and how message ids are packed."""
    pack = import_module("sidecar.brokers.pulsar.positions").pack
    ids = [(7, 3, 0), (7, 3, 5), (123_456, 49_999, 999), ((1 << 30) - 1, (1 << 22) - 1, (1 << 11) - 1)]
    fence = fences()["fences"][1]
    return {
        "positions": [{"id": list(one), "position": pack(*one)} for one in ids],
        "properties": {
            "offramp-position": str(pack(7, 3, 5)),
            "offramp-cursor": str(pack(7, 3)),
            "offramp-ranges": fence["text"],
        },
        "fence": fence,
    }


def spark() -> dict[str, Any]:
    """What a checkpoint holds, and what a query's progress says."""
    positions = import_module("spark_bridge.positions")
    lanes = {
        positions.Lane("orders", 0): 17,
        positions.Lane("orders", 11): 0,
        positions.Lane("persistent://shop/main/clicks", 2): (1 << 62) + 1,
    }
    offset = positions.to_offset("clicks", lanes)
    latest = offset | {"token": fences()["fences"][1]["token"], "address": "unix:/run/offramp.sock", "skips": True}
    return {
        "offset": json.dumps(offset),
        "lanes": [[lane.topic, lane.number, at] for lane, at in lanes.items()],
        "progress": {"endOffset": json.dumps(offset), "latestOffset": json.dumps(latest)},
    }


# Names that are seen outside.


def names() -> dict[str, Any]:
    modules = ("record", "consumer", "publish", "log", "admin")
    files = [import_module(f"offramp.v1.{name}_pb2").DESCRIPTOR for name in modules]
    return {
        "metrics": {
            metric.name: [metric.kind.value, list(metric.labels)] for metric in import_module("sidecar.metrics").METRICS
        },
        "fields": {
            f"{message.full_name}.{field.name}": [field.number, field.type, field.is_repeated]
            for file in files
            for message in file.message_types_by_name.values()
            for field in message.fields
        },
        "values": {
            f"{enum.full_name}.{value.name}": value.number
            for file in files
            for enum in file.enum_types_by_name.values()
            for value in enum.values
        },
        "methods": [
            method.full_name
            for file in files
            for service in file.services_by_name.values()
            for method in service.methods
        ],
        "commands": sorted(import_module("sidecar.cli").COMMANDS),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
