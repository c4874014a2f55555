"""`PublishService`: messages from apps to a broker."""

from offramp.v1 import publish_pb2 as pb
from sidecar.brokers.connections import Connections
from sidecar.model.errors import BrokerError, InvalidRequest, NotFound, OutOfRoom, Refused, Unmet
from sidecar.model.reasons import Reason
from sidecar.model.records import Header, Message, Place
from sidecar.server.auth.caller import ALL_SUBSCRIPTIONS, current
from sidecar.server.grpc.entries import MAX_ENTRIES
from sidecar.server.grpc.rpc import Handler, unary
from sidecar.server.subscriptions import SubscriptionRegistry
from sidecar.settings import Right

#: milliseconds that a message may wait: brokers take delays of days, and add them to a time
_MAX_DELAY_MS = 366 * 86_400_000
#: bytes of a deduplication id, and characters of the text of a result
_MAX_ID, _MAX_DETAIL = 256, 1_000

NAME: str = pb.DESCRIPTOR.services_by_name["PublishService"].full_name


class PublishService:
    def __init__(self, registry: SubscriptionRegistry, brokers: Connections, max_request_bytes: int) -> None:
        self._registry = registry
        self._brokers = brokers
        self._max_request_bytes = max_request_bytes

    def methods(self) -> dict[str, Handler]:
        return {
            "Publish": unary("Publish", pb.PublishRequest, self._publish),
            "GetLimits": unary("GetLimits", pb.GetLimitsRequest, self._get_limits),
        }

    async def _get_limits(self, request: pb.GetLimitsRequest) -> bytes:
        traits = self._brokers.traits(self._broker_name(request))
        limits = pb.GetLimitsResponse(
            max_request_bytes=self._max_request_bytes,
            max_messages=MAX_ENTRIES,
            delays=traits.delays,
            deduplicates=traits.deduplicates,
        )
        return limits.SerializeToString()

    async def _publish(self, request: pb.PublishRequest) -> bytes:
        name = self._broker_name(request)
        broker = self._brokers.usable(name)
        if not request.topic:
            raise InvalidRequest("topic must be given")
        current().require_topic(request.topic)
        messages = [_read_message(index, message) for index, message in enumerate(request.messages)]
        if not broker.traits.delays and any(message.deliver_after for message in messages):
            raise Unmet(f"broker {name} cannot deliver a message later (deliver_after_ms)", Reason.UNSUPPORTED)
        if not broker.traits.deduplicates and any(message.deduplication_id for message in messages):
            raise Unmet(f"broker {name} cannot tell duplicates (deduplication_id)", Reason.UNSUPPORTED)
        outcomes = await broker.publish_each(request.topic, messages) if messages else ()
        errors = [outcome for outcome in outcomes if isinstance(outcome, BrokerError)]
        if errors and len(errors) == len(outcomes) and len({error.reason for error in errors}) == 1:
            raise errors[0]
        return pb.PublishResponse(published=map(_to_published, outcomes)).SerializeToString()

    def _broker_name(self, request: pb.PublishRequest | pb.GetLimitsRequest) -> str:
        match request.WhichOneof("target"):
            case "subscription":
                return self._registry.get(request.subscription, Right.PUBLISH).settings.broker
            case "broker":
                current().require(Right.PUBLISH, ALL_SUBSCRIPTIONS)
                return request.broker
            case _:
                raise InvalidRequest("the target must be given: a subscription or a broker")


def _to_published(outcome: Place | BrokerError) -> pb.Published:
    if isinstance(outcome, Place):
        return pb.Published(lane=outcome.lane, position=outcome.position, status=pb.PUBLISH_STATUS_PUBLISHED)
    # Only what the broker has answered is certain.
    certain = isinstance(outcome, Refused | NotFound | OutOfRoom)
    return pb.Published(
        status=pb.PUBLISH_STATUS_REFUSED if certain else pb.PUBLISH_STATUS_UNKNOWN,
        reason=f"ERROR_REASON_{outcome.reason.name}",
        detail=str(outcome)[:_MAX_DETAIL],
        retryable=outcome.reason.retryable,
    )


def _read_message(index: int, message: pb.Message) -> Message:
    if message.timestamp_ms < 0:
        raise InvalidRequest(f"messages[{index}]: timestamp_ms is {message.timestamp_ms}; it must not be negative")
    if message.deliver_after_ms > _MAX_DELAY_MS:
        raise InvalidRequest(
            f"messages[{index}]: deliver_after_ms is {message.deliver_after_ms}; at most {_MAX_DELAY_MS} (366 days)"
        )
    if len(message.deduplication_id) > _MAX_ID or len(message.deduplication_id.encode()) > _MAX_ID:
        raise InvalidRequest(f"messages[{index}]: deduplication_id is longer than {_MAX_ID} bytes")
    return Message(
        key=message.key if message.HasField("key") else None,
        value=message.value if message.HasField("value") else None,
        headers=tuple(Header(one.name, one.value if one.HasField("value") else None) for one in message.headers),
        lane=message.lane if message.HasField("lane") else None,
        timestamp_ms=message.timestamp_ms,
        deliver_after=message.deliver_after_ms / 1_000,
        deduplication_id=message.deduplication_id,
    )
