"""Every status that the sidecar sends says why, to people and to programs."""

import inspect
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo

from offramp.v1 import consumer_pb2, error_pb2, log_pb2, log_pb2_grpc, publish_pb2, record_pb2
from sidecar.model import errors
from sidecar.model.reasons import Reason
from sidecar.model.records import Lane
from sidecar.server.grpc.entries import MAX_ENTRIES
from sidecar.server.grpc.rpc import answer_errors
from sidecar.server.grpc.statuses import DETAILS, abort, code_of
from tests.unit.server.grpc.consumer.fetch_kit import Session, alone
from tests.unit.server.grpc.service_kit import ACK, Kit, Stream, error_info, error_of, in_loop, with_sidecar


class Aborted(Exception):
    pass


class EndedCall:
    """A context that keeps the status with which its call ended."""

    def __init__(self, *metadata: tuple[str, str]) -> None:
        self._metadata = metadata
        self.code = grpc.StatusCode.OK
        self.text = ""
        self.sent: tuple[tuple[str, str | bytes], ...] = ()

    def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    async def abort(self, code: grpc.StatusCode, text: str, metadata: tuple[tuple[str, str | bytes], ...]) -> None:
        self.code, self.text, self.sent = code, text, metadata
        raise Aborted


async def end_with(error: errors.OfframpError, *metadata: tuple[str, str]) -> tuple[EndedCall, ErrorInfo]:
    call = EndedCall(*metadata)
    with pytest.raises(Aborted):
        await abort(call, error)  # type: ignore[arg-type]
    return call, error_info(call.code, call.text, call.sent)


def test_reasons_are_those_of_the_protocol() -> None:
    protocol = {value.name: value.number for value in error_pb2.ErrorReason.DESCRIPTOR.values if value.number}
    assert {f"ERROR_REASON_{reason.name}": reason.value for reason in Reason} == protocol


def test_every_kind_of_error_that_a_call_may_end_with_has_a_reason_of_its_own() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.OfframpError)]
    leaves = [kind for kind in kinds if kind.__subclasses__() == []]
    ends_no_call = {errors.ConfigError, errors.StartError}
    # These ask for the reason each time.
    told = {errors.Unknown}
    assert [kind for kind in leaves if kind.reason is Reason.INTERNAL] == [
        kind for kind in leaves if kind in ends_no_call | told | {errors.OutOfTurn, errors.Stalled}
    ]


@in_loop
async def test_other_trailing_metadata_stays() -> None:
    call, info = await end_with(errors.Removed("gone", 3, 7), ("offramp-first-position", "3"))
    assert info.reason == "OUT_OF_RANGE"
    assert call.sent[0] == ("offramp-first-position", "3")


@in_loop
async def test_whether_a_retry_may_help_is_said() -> None:
    for error, retryable in (
        (errors.Stopping("x"), "true"),
        (errors.Unavailable("x"), "true"),
        (errors.OutOfRoom("x"), "true"),
        (errors.Refused("x"), "false"),
        (errors.InvalidRequest("x"), "false"),
    ):
        _, info = await end_with(error)
        assert info.metadata["retryable"] == retryable


@pytest.mark.parametrize("text", ["x" * 100_000, "😀" * 100_000, " " * 100_000, "ö\n" * 50_000])
@in_loop
async def test_a_long_text_leaves_room_in_the_headers(text: str) -> None:
    call, _ = await end_with(errors.InvalidRequest(text, limit="ö" * 100_000))
    assert 100 < len(call.text) <= 2_000
    assert sum(len(value) for name, value in call.sent if name == DETAILS) * 4 / 3 < 5_000


@in_loop
async def test_a_bug_has_a_reason_too() -> None:
    call = EndedCall()
    with pytest.raises(Aborted):
        async with answer_errors(call, "Fetch"):  # type: ignore[arg-type]
            raise ZeroDivisionError
    assert error_info(call.code, call.text, call.sent).reason == "INTERNAL"


async def failure(call: Any) -> ErrorInfo:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    error = raised.value
    return error_info(error.code(), error.details() or "", error.trailing_metadata() or ())


@with_sidecar(listen={"max_sessions": 1})
async def test_a_program_can_tell_why_a_call_was_refused(kit: Kit) -> None:
    nobody = consumer_pb2.FetchRequest(subscription="nobody")
    assert (await failure(kit.consumer.Fetch(nobody))).reason == "SUBSCRIPTION_NOT_FOUND"
    assert (await failure(kit.consumer.Fetch(consumer_pb2.FetchRequest(session=b"x")))).reason == "SESSION_NOT_FOUND"
    ranges = log_pb2_grpc.LogServiceStub(kit.channel)
    mode = await failure(ranges.Attach(log_pb2.AttachRequest(subscription="orders")))
    assert (mode.reason, mode.metadata["mode"]) == ("MODE", "leases")
    broker = publish_pb2.PublishRequest(broker="nobody", topic="t")
    assert (await failure(kit.publisher.Publish(broker))).reason == "BROKER_NOT_FOUND"
    newer = Stream(kit.consumer)
    await newer.send(
        hello=consumer_pb2.Hello(subscription="orders", client=consumer_pb2.Client(needs_protocol_minor=99))
    )
    await newer.end()
    version = await error_of(newer.call)
    assert (version.reason, version.metadata["needed"]) == ("VERSION", "99")
    session = await Session.open(kit)
    assert (await failure(session.fetch(seq=7))).reason == "SEQ"
    sessions = await failure(alone(kit))
    assert sessions.reason == "TOO_MANY_SESSIONS"
    assert {**sessions.metadata} == {"limit": "listen.max_sessions", "max": "1", "retryable": "true"}


TOO_MANY = {
    "settlements": lambda kit: kit.consumer.Settle(
        consumer_pb2.SettleRequest(settlements=[record_pb2.Settlement()] * (MAX_ENTRIES + 1))
    ),
    "extensions": lambda kit: kit.consumer.ExtendLease(
        consumer_pb2.ExtendLeaseRequest(extensions=[record_pb2.Extension()] * (MAX_ENTRIES + 1))
    ),
    "messages": lambda kit: kit.publisher.Publish(
        publish_pb2.PublishRequest(broker="local", topic="t", messages=[publish_pb2.Message()] * (MAX_ENTRIES + 1))
    ),
}


@pytest.mark.parametrize("limit", TOO_MANY)
@with_sidecar()
async def test_more_entries_than_the_welcome_allows_are_refused(kit: Kit, limit: str) -> None:
    stream = await kit.stream()
    assert stream.welcome.limits.max_request_entries == MAX_ENTRIES
    info = await failure(TOO_MANY[limit](kit))
    assert (info.reason, info.metadata["limit"], info.metadata["max"]) == ("TOO_MANY_ENTRIES", limit, "10000")


@with_sidecar()
async def test_a_stream_with_too_many_entries_in_a_request_ends(kit: Kit) -> None:
    stream = await kit.stream()
    await stream.settle(*[record_pb2.Settlement(lease=b"x", outcome=ACK)] * (MAX_ENTRIES + 1))
    assert await stream.end() == grpc.StatusCode.INVALID_ARGUMENT


@with_sidecar()
async def test_as_many_as_are_allowed_are_answered_while_others_are_served(kit: Kit) -> None:
    await kit.publish([b"a"])
    stream = await kit.stream(batches=0)
    await stream.settle(*[record_pb2.Settlement(lease=b"x", outcome=ACK)] * MAX_ENTRIES)
    for _ in range(MAX_ENTRIES):
        assert (await stream.result()).status == record_pb2.SETTLE_STATUS_UNKNOWN
    await stream.send(credit=consumer_pb2.Credit(batches=1))
    await stream.batch()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Unavailable("x"), grpc.StatusCode.UNAVAILABLE),
        (errors.OutOfRoom("x"), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (errors.TooLarge("x"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.Refused("x"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.NotFound("x"), grpc.StatusCode.NOT_FOUND),
        (errors.LaneGone([Lane("t", 0)]), grpc.StatusCode.ABORTED),
        (errors.Corrupt("x"), grpc.StatusCode.DATA_LOSS),
        (errors.OutOfTurn("x"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.Superseded("x"), grpc.StatusCode.ABORTED),
        (errors.Stopping("x"), grpc.StatusCode.UNAVAILABLE),
    ],
)
def test_every_error_has_its_status(error: errors.OfframpError, code: grpc.StatusCode) -> None:
    assert code_of(error) == code
