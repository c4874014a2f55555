"""The driver's calls, to a fake server."""

from contextlib import AbstractContextManager

import grpc

from offramp.channel import Access
from offramp.v1 import log_pb2 as pb
from spark_bridge.log_client import LogClient
from spark_bridge.options import NamedPosition
from tests.spark import fake_log_service


class Slow:
    """Needs this many seconds to find anything, which nobody waits for here: a call that gives it fewer ends at once,
    as it would be in the end."""

    def __init__(self, needs: float) -> None:
        self.needs = needs
        #: seconds that each call was given, roughly: some went by on the way
        self.given: list[float] = []

    def locate(self, request: pb.LocateRequest, context: grpc.ServicerContext) -> pb.LocateResponse:
        self.given.append(round(context.time_remaining(), -1))
        if context.time_remaining() < self.needs:
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "it took too long")
        return pb.LocateResponse()


def serving(slow: Slow) -> AbstractContextManager[str]:
    locate = grpc.unary_unary_rpc_method_handler(
        slow.locate, pb.LocateRequest.FromString, pb.LocateResponse.SerializeToString
    )
    return fake_log_service.serving(Locate=locate)


def test_a_call_that_takes_long_is_given_more_time_with_each_attempt() -> None:
    slow = Slow(100.0)
    with serving(slow) as address, LogClient(Access(address=address), "clicks", 600.0) as client:
        assert client.locate(NamedPosition.EARLIEST) == {}
    assert slow.given == [20, 40, 80, 160]


def test_no_attempt_is_given_more_than_is_left() -> None:
    slow = Slow(45.0)
    with serving(slow) as address, LogClient(Access(address=address), "clicks", 60.0) as client:
        assert client.locate(NamedPosition.EARLIEST) == {}
    assert slow.given[:2] == [20, 40]
    assert slow.given[2] in (50, 60)
