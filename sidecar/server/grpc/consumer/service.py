"""`ConsumerService`: admission of sessions. What happens within one is in `consume_stream` and `fetch_session`."""

from collections.abc import Iterator
from contextlib import contextmanager

from offramp.v1 import consumer_pb2 as pb
from sidecar.model.errors import ResourceExhausted, Stalled, Unknown
from sidecar.model.reasons import Reason
from sidecar.model.records import SessionEnd
from sidecar.model.version import FEATURES, PROTOCOL_MINOR, VERSION
from sidecar.server.auth.caller import current
from sidecar.server.grpc import responses
from sidecar.server.grpc.consumer import settling
from sidecar.server.grpc.consumer.consume_stream import METHOD as CONSUME
from sidecar.server.grpc.consumer.consume_stream import ConsumeStream, read_hello
from sidecar.server.grpc.consumer.fetch_session import FetchSession, OpenStream, fetch_alone
from sidecar.server.grpc.consumer.resumption import ResumableSessions
from sidecar.server.grpc.consumer.sessions import read_terms
from sidecar.server.grpc.entries import MAX_ENTRIES
from sidecar.server.grpc.requests import DEFAULT_MESSAGE_BYTES
from sidecar.server.grpc.rpc import Context, Handler, both_stream, server_stream, unary
from sidecar.server.grpc.slow_clients import StreamWriter, UnreadResponses
from sidecar.server.grpc.statuses import abort
from sidecar.server.subscriptions import SubscriptionRegistry
from sidecar.settings import ListenSettings, Right
from sidecar.subscription.session import Session
from sidecar.subscription.subscription import Subscription

NAME: str = pb.DESCRIPTOR.services_by_name["ConsumerService"].full_name


class ConsumerService:
    """All sessions of the sidecar."""

    def __init__(self, registry: SubscriptionRegistry, settings: ListenSettings) -> None:
        self._registry = registry
        self._settings = settings
        self._unread = UnreadResponses(sum(one.settings.memory.bytes for one in registry.leased.values()))
        self._admitted = 0
        self._streams: set[ConsumeStream] = set()
        self._sessions: dict[bytes, FetchSession] = {}
        #: those of Consume, and those of Open
        self._resumable_streams = ResumableSessions(settings.resume_max)
        self._resumable_sessions = ResumableSessions(settings.resume_max, self._forget)

    def methods(self) -> dict[str, Handler]:
        return {
            CONSUME: both_stream(CONSUME, self._consume),
            "Open": server_stream("Open", pb.OpenRequest, self._open),
            "Fetch": unary("Fetch", pb.FetchRequest, self._fetch, self._unread.count),
            "Settle": unary("Settle", pb.SettleRequest, self._settle),
            "ExtendLease": unary("ExtendLease", pb.ExtendLeaseRequest, self._extend_lease),
        }

    def stop(self) -> None:
        """End every session's stream with UNAVAILABLE, once its answers are written. Called after subscriptions have
        drained."""
        self._resumable_streams.stop()
        self._resumable_sessions.stop()
        for stream in self._streams:
            stream.stop()
        for session in self._sessions.values():
            session.stop()

    async def _consume(self, context: Context) -> None:
        first = await read_hello(context)
        hello = first.hello
        subscription = self._registry.get_leased(hello.subscription, Right.CONSUME)
        terms = read_terms(hello)
        former = self._resumable_streams.claim(hello.resume, subscription)
        with self._admission(former), StreamWriter(context, self._settings.unread) as writer:
            stream = ConsumeStream(
                context, writer, subscription, self._registry, terms, self._resumable_streams, former
            )
            self._streams.add(stream)
            try:
                await stream.run(first, lambda session, grace: self._welcome(session, subscription, grace))
            except Stalled as error:
                # Returns when the client has read it, and the session counts until then: gRPC holds what is unread.
                await abort(context, error)
            finally:
                self._streams.discard(stream)

    async def _open(self, request: pb.OpenRequest, context: Context) -> None:
        subscription = self._registry.get_leased(request.subscription, Right.CONSUME)
        terms = read_terms(request)
        former = self._resumable_sessions.claim(request.resume, subscription)
        with self._admission(former), StreamWriter(context, self._settings.unread) as writer:
            if former is None:
                session = FetchSession(subscription, self._registry, terms)
                self._sessions[session.id] = session
            else:
                session = self._sessions[former.id]
                session.reconnect(terms)
            stream = OpenStream(writer, session, terms.max_message_bytes)
            resumable = self._resumable_sessions
            grace = resumable.connected(subscription, session.session, stream, request.resume_ms)
            try:
                await stream.run(self._welcome(session.session, subscription, grace))
            finally:
                if not stream.superseded and not (stream.disconnected and session.wait(resumable)):
                    resumable.ended(session.session)
                    self._forget(session.session)
                    session.end(SessionEnd.LOST)

    async def _fetch(self, request: pb.FetchRequest) -> bytes:
        self._unread.check()
        if request.session:
            session = self._sessions.get(request.session)
            if session is None:
                raise Unknown(
                    f"there is no session {request.session.hex()}: its stream ended, or it is from before a restart; "
                    "open a new one",
                    Reason.SESSION_NOT_FOUND,
                )
            current().require(Right.CONSUME, session.subscription)
            return await session.fetch(request, self._unread.check)
        subscription = self._registry.get_leased(request.subscription, Right.CONSUME)
        with self._admission():
            return await fetch_alone(request, subscription, self._registry, self._unread.check)

    async def _settle(self, request: pb.SettleRequest) -> bytes:
        results = await settling.settle(self._registry, request.settlements)
        return b"".join(responses.settle_results(responses.SETTLE_RESULTS, results, DEFAULT_MESSAGE_BYTES))

    async def _extend_lease(self, request: pb.ExtendLeaseRequest) -> bytes:
        extended = await settling.extend(self._registry, request.extensions)
        return b"".join(responses.extend_result(responses.EXTEND_RESULTS, one) for one in extended)

    def _forget(self, session: Session) -> None:
        del self._sessions[session.id]

    @contextmanager
    def _admission(self, former: Session | None = None) -> Iterator[None]:
        """Counts the call as a session. One that resumes `former` takes its place, and is always admitted."""
        sessions = self._admitted + self._resumable_streams.away + self._resumable_sessions.away
        if former is None and sessions >= self._settings.max_sessions:
            raise ResourceExhausted(
                f"there are {sessions} sessions already (listen.max_sessions)",
                Reason.TOO_MANY_SESSIONS,
                limit="listen.max_sessions",
                max=self._settings.max_sessions,
            )
        self._admitted += 1
        try:
            yield
        finally:
            self._admitted -= 1

    def _welcome(self, session: Session, subscription: Subscription, grace_ms: int) -> pb.Welcome:
        settings = subscription.settings
        return pb.Welcome(
            session=session.id,
            boot=self._registry.boot,
            protocol_minor=PROTOCOL_MINOR,
            sidecar_version=VERSION,
            limits=pb.Limits(
                batch_records=settings.batch.records,
                batch_bytes=settings.batch.bytes,
                lease_max_ms=int(settings.lease.max * 1_000),
                max_request_bytes=self._settings.max_request_bytes,
                max_request_entries=MAX_ENTRIES,
            ),
            features=FEATURES,
            resume_ms=grace_ms,
        )
