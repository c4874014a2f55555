"""The driver's calls of `LogService`, retried across restarts of the sidecar."""

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, Self

import grpc

from offramp._internal.backoff import Backoff
from offramp.channel import Access
from offramp.errors import Failure, Incompatible
from offramp.v1 import log_pb2 as pb
from offramp.v1 import log_pb2_grpc
from spark_bridge.errors import DataLoss, from_rpc_error, is_transient
from spark_bridge.options import NamedPosition, Options
from spark_bridge.positions import Lane, Positions, from_wire, to_wire

logger = logging.getLogger("offramp.spark")

#: seconds that the first attempt of a call may take; each one that times out doubles it
_FIRST_CALL_TIMEOUT = 20.0


class Plan(NamedTuple):
    until: Positions
    #: where the lanes end now
    ends: Positions


class LogClient:
    """Calls one sidecar about one subscription. For one thread. Connects with the first call.

    Every call is idempotent and is retried until it is answered or `timeout` seconds are over; then it raises
    `Unavailable`. What the sidecar refuses is raised at once, see `spark_bridge.errors`.
    """

    def __init__(self, access: Access, subscription: str, timeout: float) -> None:
        #: where the sidecar is, in the form that gRPC expects
        self.address = access.target
        self._access = access
        self._subscription = subscription
        self._timeout = timeout
        self._channel: grpc.Channel | None = None

    @classmethod
    def configured(cls, options: Options) -> "LogClient":
        """Raises `BadOption`."""
        subscription = options.require("subscription", "as in the sidecar's configuration")
        return cls(options.access(), subscription, options["timeout"])

    def attach(self, reader: str | None) -> tuple[int, Positions]:
        """Takes the right to plan and commit from whoever had it. Returns the token that proves it, and what is
        committed."""
        request = pb.AttachRequest(
            subscription=self._subscription, reader=reader or f"spark {socket.gethostname()}-{os.getpid()}"
        )
        response: pb.AttachResponse = self._call("Attach", request)
        return response.token, from_wire(response.committed)

    def resolve_start(self, token: int, start: NamedPosition | datetime) -> Positions:
        """Where a reader without a checkpoint starts; the same for every call."""
        request = pb.ResolveStartRequest(subscription=self._subscription, token=token, **_start(start))
        return from_wire(self._call("ResolveStart", request).positions)

    def plan(
        self, start: Mapping[Lane, int], max_records: int, max_bytes: int, ceiling: Mapping[Lane, int], token: int = 0
    ) -> Plan:
        """How far the next range may go, at most to `ceiling`. A limit of 0 is none. Raises `Replaced` if another
        reader has attached since the token was given out; 0 is not checked."""
        request = pb.PlanRequest(
            subscription=self._subscription,
            token=token,
            start=to_wire(start),
            max_records=max_records,
            max_bytes=max_bytes,
            ceiling=to_wire(ceiling),
        )
        response: pb.PlanResponse = self._call("Plan", request)
        return Plan(from_wire(response.until), from_wire(response.ends))

    def locate(self, at: NamedPosition | datetime) -> Positions:
        """The position of each lane at a time or at its beginning or end. Changes nothing."""
        request = pb.LocateRequest(subscription=self._subscription, **_start(at))
        return from_wire(self._call("Locate", request).positions)

    def locate_dead_letters(self, at: NamedPosition) -> tuple[Positions, str]:
        """The same in the dead-letter topic, and the group whose dead letters are meant."""
        request = pb.LocateRequest(subscription=self._subscription, dead_letters=True, **_start(at))
        response: pb.LocateResponse = self._call("Locate", request)
        if not response.group:
            raise Incompatible(
                f"{self.address}: the sidecar there is older than this bridge and does not tell where dead "
                "letters are. Use a sidecar of the bridge's version, or a newer one"
            )
        return from_wire(response.positions), response.group

    def commit(self, token: int, positions: Mapping[Lane, int], *, skip_missing: bool = False) -> None:
        """Commits everything before these positions. Raises `Replaced` if another reader has attached since, and
        `DataLoss` or `NotFound` for a position that does not exist, unless `skip_missing` leaves those lanes out."""
        if skip_missing:
            positions = self.without_missing(positions, self.ends())
        request = pb.CommitUpToRequest(subscription=self._subscription, token=token, positions=to_wire(positions))
        self._call("CommitUpTo", request)

    def ends(self) -> Positions:
        """Where all lanes end now."""
        return self.plan({}, 0, 0, {}).ends

    def without_missing(self, positions: Mapping[Lane, int], ends: Mapping[Lane, int]) -> Positions:
        """Without the lanes that are gone, or were recreated and are shorter."""
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

    def __exit__(self, *error: object) -> None:
        self.close()

    def _is_written(self, lane: Lane, at: int) -> bool:
        try:
            # Beyond the end may be records of an open transaction: only the sidecar knows.
            self.plan({lane: at}, 0, 0, {})
        except DataLoss:
            return False
        return True

    def _call(self, method: str, request: Any) -> Any:
        deadline = RetryDeadline(self._timeout)
        call_timeout = _FIRST_CALL_TIMEOUT
        while True:
            if self._channel is None:
                self._channel = self._access.open()
            stub = log_pb2_grpc.LogServiceStub(self._channel)  # type: ignore[no-untyped-call]
            try:
                return getattr(stub, method)(request, timeout=min(call_timeout, deadline.left))
            except grpc.RpcError as error:
                # A failed channel waits before it reconnects; a new one does not.
                self.close()
                deadline.wait_or_raise(error, self.address)
                if _timed_out(error):
                    # The call may just be slow, and it starts over: Pulsar searches a large topic for a time.
                    call_timeout *= 2


class RetryDeadline:
    """Decides when to retry a call, and when to give up."""

    def __init__(self, timeout: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._timeout = timeout
        self._ends = now() + timeout
        self._backoff = Backoff()

    @property
    def left(self) -> float:
        """Seconds left, always more than 0."""
        return max(0.001, self._ends - self._now())

    def progressed(self) -> None:
        """Restarts the timeout: something arrived."""
        self._ends = self._now() + self._timeout
        self._backoff.reset()

    def wait_or_raise(self, error: grpc.RpcError, address: str) -> None:
        """Waits before the next attempt. Raises the translated error if a retry cannot help or the time is over."""
        pause = self._backoff.next()
        if not (is_transient(error) or _timed_out(error)) or self._now() + pause >= self._ends:
            raise from_rpc_error(error, address) from error
        logger.info("%s: call failed, retrying in %.1f s", address, pause)
        time.sleep(pause)


def _timed_out(error: grpc.RpcError) -> bool:
    return Failure.of(error).code is grpc.StatusCode.DEADLINE_EXCEEDED


def _start(at: NamedPosition | datetime) -> dict[str, Any]:
    match at:
        case NamedPosition.EARLIEST:
            return {"earliest": pb.StartEarliest()}
        case NamedPosition.LATEST:
            return {"latest": pb.StartLatest()}
        case NamedPosition.COMMITTED:
            return {"committed": pb.StartCommitted()}
    return {"timestamp_ms": round(at.timestamp() * 1_000)}
