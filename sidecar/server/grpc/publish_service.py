"""`PublishService`: messages from apps to a broker."""

from offramp.v1 import publish_pb2 as pb
from sidecar.brokers.connections import Connections
from sidecar.model.errors import InvalidRequest
from sidecar.model.records import Header, Message
from sidecar.server.auth.caller import ALL_SUBSCRIPTIONS, current
from sidecar.server.grpc.entries import MAX_ENTRIES
from sidecar.server.grpc.rpc import Handler, unary
from sidecar.server.subscriptions import SubscriptionRegistry
from sidecar.settings import Right

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
        self._broker_name(request)
        limits = pb.GetLimitsResponse(max_request_bytes=self._max_request_bytes, max_messages=MAX_ENTRIES)
        return limits.SerializeToString()

    async def _publish(self, request: pb.PublishRequest) -> bytes:
        broker = self._brokers.usable(self._broker_name(request))
        if not request.topic:
            raise InvalidRequest("topic must be given")
        current().require_topic(request.topic)
        messages = [_read_message(index, message) for index, message in enumerate(request.messages)]
        places = await broker.publish(request.topic, messages) if messages else ()
        published = [pb.Published(lane=place.lane, position=place.position) for place in places]
        return pb.PublishResponse(published=published).SerializeToString()

    def _broker_name(self, request: pb.PublishRequest | pb.GetLimitsRequest) -> str:
        match request.WhichOneof("target"):
            case "subscription":
                return self._registry.get(request.subscription, Right.PUBLISH).settings.broker
            case "broker":
                current().require(Right.PUBLISH, ALL_SUBSCRIPTIONS)
                return request.broker
            case _:
                raise InvalidRequest("the target must be given: a subscription or a broker")


def _read_message(index: int, message: pb.Message) -> Message:
    if message.timestamp_ms < 0:
        raise InvalidRequest(f"messages[{index}]: timestamp_ms is {message.timestamp_ms}; it must not be negative")
    return Message(
        key=message.key if message.HasField("key") else None,
        value=message.value if message.HasField("value") else None,
        headers=tuple(Header(one.name, one.value if one.HasField("value") else None) for one in message.headers),
        lane=message.lane if message.HasField("lane") else None,
        timestamp_ms=message.timestamp_ms,
    )
