"""A reader of ranges against real sidecars, with a blocking client."""

from collections.abc import Mapping
from typing import Any

from offramp.v1 import log_pb2, log_pb2_grpc
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar

#: topic, lane
At = dict[tuple[str, int], int]


class Reader:
    """What a driver keeps: its token. Any call may go to any sidecar."""

    def __init__(self, subscription: str = "orders") -> None:
        self.subscription = subscription
        self.token = 0

    def attach(self, sidecar: Sidecar, name: str = "query") -> At:
        answer = _call(sidecar, "Attach", log_pb2.AttachRequest(subscription=self.subscription, reader=name))
        self.token = answer.token
        return _by_lane(answer.committed)

    def resolve_start(self, sidecar: Sidecar, **start: Any) -> At:
        request = log_pb2.ResolveStartRequest(subscription=self.subscription, token=self.token, **start)
        return _by_lane(_call(sidecar, "ResolveStart", request).positions)

    def plan(self, sidecar: Sidecar, start: At, **limits: int) -> At:
        request = log_pb2.PlanRequest(subscription=self.subscription, start=_positions(start), **limits)
        return _by_lane(_call(sidecar, "Plan", request).until)

    def commit(self, sidecar: Sidecar, at: At) -> At:
        request = log_pb2.CommitUpToRequest(subscription=self.subscription, token=self.token, positions=_positions(at))
        return _by_lane(_call(sidecar, "CommitUpTo", request).committed)

    def locate(self, sidecar: Sidecar, *topics: str, **at: Any) -> At:
        request = log_pb2.LocateRequest(subscription=self.subscription, topics=topics, **at)
        return _by_lane(_call(sidecar, "Locate", request).positions)

    def read(self, sidecar: Sidecar, start: At, until: At) -> dict[tuple[str, int], list[bytes]]:
        """The values of a range, by lane."""
        found: dict[tuple[str, int], list[bytes]] = {}
        with sidecar.channel() as channel:
            stub = log_pb2_grpc.LogServiceStub(channel)
            for (topic, lane), stop in until.items():
                begin = start.get((topic, lane), stop)
                request = log_pb2.ReadRangeRequest(
                    subscription=self.subscription, topic=topic, lane=lane, start=begin, until=stop
                )
                answers = stub.ReadRange(request, timeout=WAIT_TIMEOUT)
                found[topic, lane] = [record.value for answer in answers for record in answer.records]
        return found


def _call(sidecar: Sidecar, method: str, request: Any) -> Any:
    with sidecar.channel() as channel:
        return getattr(log_pb2_grpc.LogServiceStub(channel), method)(request, timeout=WAIT_TIMEOUT)


def _positions(at: Mapping[tuple[str, int], int]) -> list[log_pb2.LanePosition]:
    return [log_pb2.LanePosition(topic=topic, lane=lane, position=to) for (topic, lane), to in at.items()]


def _by_lane(at: Any) -> At:
    return {(one.topic, one.lane): one.position for one in at}
