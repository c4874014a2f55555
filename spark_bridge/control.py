"""The calls of `LogService` that a driver makes, waited for across restarts of the sidecar."""

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc

from offramp._internal.backoff import Backoff
from offramp.channel import Access
from offramp.errors import Incompatible
from offramp.v1 import log_pb2 as pb
from offramp.v1 import log_pb2_grpc
from spark_bridge.errors import DataLoss, may_pass, translated
from spark_bridge.options import Named
from spark_bridge.positions import Lane, Positions, from_wire, to_wire

logger = logging.getLogger("offramp.spark")

#: seconds that the first attempt may take before it counts as lost
_FIRST_ATTEMPT = 20.0


class Planned(NamedTuple):
    until: Positions
    #: of the lanes, now
    ends: Positions


class Control:
    """Talks to one sidecar about one subscription, for one thread.

    Every call is idempotent and is made again until it was answered or `timeout` seconds are over; then it raises
    `Unavailable`. What the sidecar refuses is raised at once, see `spark_bridge.errors`.
    """

    def __init__(self, access: Access, subscription: str, timeout: float) -> None:
        self._access = access
        self._subscription = subscription
        self._timeout = timeout
        self._channel: grpc.Channel | None = None

    def attach(self, reader: str | None) -> int:
        """Take the right to commit; whoever had it is replaced. The token that proves it."""
        request = pb.AttachRequest(
            subscription=self._subscription, reader=reader or f"spark {socket.gethostname()}-{os.getpid()}"
        )
        answer: pb.AttachResponse = self._call("Attach", request)
        return answer.token

    def resolve_start(self, token: int, start: Named | datetime) -> Positions:
        """Where a reader without a checkpoint starts; the same however often it is asked."""
        request = pb.ResolveStartRequest(subscription=self._subscription, token=token, **_start(start))
        return from_wire(self._call("ResolveStart", request).positions)

    def plan(self, start: Mapping[Lane, int], max_records: int, max_bytes: int, ceiling: Mapping[Lane, int]) -> Planned:
        """How far the next range may go. 0: no limit."""
        request = pb.PlanRequest(
            subscription=self._subscription,
            start=to_wire(start),
            max_records=max_records,
            max_bytes=max_bytes,
            ceiling=to_wire(ceiling),
        )
        answer: pb.PlanResponse = self._call("Plan", request)
        return Planned(from_wire(answer.until), from_wire(answer.ends))

    def locate(self, at: Named | datetime) -> Positions:
        """Positions of all lanes by time, or their ends. Changes nothing."""
        request = pb.LocateRequest(subscription=self._subscription, **_start(at))
        return from_wire(self._call("Locate", request).positions)

    def locate_dead_letters(self, at: Named) -> tuple[Positions, str]:
        """The same in the dead-letter topic, and the group whose dead letters are meant."""
        request = pb.LocateRequest(subscription=self._subscription, dead_letters=True, **_start(at))
        answer: pb.LocateResponse = self._call("Locate", request)
        if not answer.group:
            raise Incompatible(
                f"{self._access.target}: the sidecar there is older than this bridge and does not tell where dead "
                "letters are. Use a sidecar of the bridge's version, or a newer one"
            )
        return from_wire(answer.positions), answer.group

    def commit(self, token: int, positions: Mapping[Lane, int]) -> None:
        """Cumulative. Raises `Replaced` if another has attached since, and `DataLoss` or `NotFound` for what is not
        there."""
        request = pb.CommitUpToRequest(subscription=self._subscription, token=token, positions=to_wire(positions))
        self._call("CommitUpTo", request)

    def commit_what_is_there(self, token: int, positions: Mapping[Lane, int]) -> None:
        """The same, but for lanes that are gone, or were made anew and are shorter: those are passed over."""
        self.commit(token, self.what_is_there(positions, self.plan({}, 0, 0, {}).ends))

    def what_is_there(self, positions: Mapping[Lane, int], ends: Mapping[Lane, int]) -> Positions:
        """Without the lanes that are gone, or were made anew and are shorter. `ends` are from a plan."""
        return {
            lane: at
            for lane, at in positions.items()
            if lane in ends and (at <= ends[lane] or self._is_written(lane, at))
        }

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _is_written(self, lane: Lane, at: int) -> bool:
        """Beyond the end there may be what cannot be read yet: the sidecar knows."""
        try:
            self.plan({lane: at}, 0, 0, {})
        except DataLoss:
            return False
        return True

    def _call(self, method: str, request: Any) -> Any:
        attempts = Attempts(self._timeout)
        patience = _FIRST_ATTEMPT
        while True:
            if self._channel is None:
                self._channel = self._access.open()
            stub = log_pb2_grpc.LogServiceStub(self._channel)  # type: ignore[no-untyped-call]
            try:
                return getattr(stub, method)(request, timeout=min(patience, attempts.left))
            except grpc.RpcError as error:
                # A channel that has failed waits before it connects again; a new one does not.
                self.close()
                attempts.again_after(error, self._access.target)
                if _timed_out(error):
                    # Perhaps not lost but long, and it begins anew: a time in a large topic of Pulsar is searched for.
                    patience *= 2


class Attempts:
    """When to try again, and when to give up."""

    def __init__(self, timeout: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._timeout = timeout
        self._ends = now() + timeout
        self._backoff = Backoff()

    @property
    def left(self) -> float:
        """Seconds; never quite none."""
        return max(0.001, self._ends - self._now())

    def progressed(self) -> None:
        """Something came: the time counts from now on."""
        self._ends = self._now() + self._timeout
        self._backoff.reset()

    def again_after(self, error: grpc.RpcError, address: str) -> None:
        """Waits a moment, or raises what the error means if no further attempt would help or is due."""
        pause = self._backoff.next()
        if not (may_pass(error) or _timed_out(error)) or self._now() + pause >= self._ends:
            raise translated(error, address) from error
        logger.info("%s: no answer; trying again in %.1f s", address, pause)
        time.sleep(pause)


def _timed_out(error: grpc.RpcError) -> bool:
    return getattr(error, "code", lambda: None)() is grpc.StatusCode.DEADLINE_EXCEEDED


def _start(at: Named | datetime) -> dict[str, Any]:
    match at:
        case Named.EARLIEST:
            return {"earliest": pb.StartEarliest()}
        case Named.LATEST:
            return {"latest": pb.StartLatest()}
        case Named.COMMITTED:
            return {"committed": pb.StartCommitted()}
    return {"timestamp_ms": round(at.timestamp() * 1_000)}
