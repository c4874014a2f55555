"""Shared by the tests of `Fetch`."""

from typing import Any

import grpc
import pytest

from offramp.v1 import consumer_pb2, record_pb2
from sidecar.model.errors import ResourceExhausted
from sidecar.model.reasons import Reason
from sidecar.server.grpc.slow_clients import UnreadResponses
from tests.unit.server.grpc.service_kit import Kit, error_info

LONG = 10_000


class Session:
    """A process that opens a session and then fetches, as a client library would."""

    def __init__(self, kit: Kit, **request: Any) -> None:
        self.kit = kit
        self.call = kit.consumer.Open(consumer_pb2.OpenRequest(subscription="orders", **request))
        self.id = b""
        self.seq = 0

    @classmethod
    async def open(cls, kit: Kit, **request: Any) -> "Session":
        session = cls(kit, **request)
        session.id = (await session.call.read()).welcome.session
        return session

    def fetch(self, *settlements: record_pb2.Settlement, seq: int | None = None, **fields: Any) -> Any:
        """Start the call; the task may be awaited or cancelled."""
        self.seq = self.seq + 1 if seq is None else seq
        fields.setdefault("wait_ms", LONG)
        request = consumer_pb2.FetchRequest(session=self.id, seq=self.seq, settlements=settlements, **fields)
        return self.kit.consumer.Fetch(request)


def alone(kit: Kit, *settlements: record_pb2.Settlement, **fields: Any) -> Any:
    """A Fetch without a session."""
    fields.setdefault("wait_ms", LONG)
    return kit.consumer.Fetch(consumer_pb2.FetchRequest(subscription="orders", settlements=settlements, **fields))


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    error = raised.value
    error_info(error.code(), error.details() or "", error.trailing_metadata() or ())
    return error.code(), error.details() or ""


def values(response: consumer_pb2.FetchResponse) -> list[bytes]:
    return [record.value for batch in response.batches for record in batch.records]


def leave_unread_while_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller of the next Fetch has left too much unread by the time its batches are there."""
    checks = 0

    def check(_: UnreadResponses) -> None:
        nonlocal checks
        checks += 1
        if checks == 2:
            raise ResourceExhausted("read first", Reason.UNREAD_RESPONSES)

    monkeypatch.setattr(UnreadResponses, "check", check)
