"""Every call of the protocol, from the descriptors of its services, so that tests of all calls include new ones."""

from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from offramp.v1 import admin_pb2, consumer_pb2, log_pb2, publish_pb2

METHODS = {
    method.name: method
    for file in (consumer_pb2, publish_pb2, admin_pb2, log_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


def request_class(name: str) -> type[Message]:
    return GetMessageClass(METHODS[name].input_type)


def call(channel: grpc.Channel, name: str, request: Any, timeout: float) -> Any:
    """The response, or a stream of them. `request` is a stream, too, if the client may send several."""
    method = METHODS[name]
    kinds = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, True): channel.stream_stream,
    }
    make = kinds[method.client_streaming, method.server_streaming]
    deserialize = GetMessageClass(method.output_type).FromString
    path = f"/{method.containing_service.full_name}/{name}"
    return make(path, lambda message: message.SerializeToString(), deserialize)(request, timeout=timeout)
