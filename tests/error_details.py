"""The trailing metadata in which a sidecar says why, made with gRPC's own types, for those that stand in for one."""

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status


def error_details(
    code: grpc.StatusCode, text: str, reason: str, *, retryable: bool = False, domain: str = "offramp.v1"
) -> tuple[tuple[str, bytes], ...]:
    info = ErrorInfo(reason=reason, domain=domain, metadata={"retryable": str(retryable).lower()})
    status = Status(code=code.value[0], message=text)
    status.details.add().Pack(info)
    return (("grpc-status-details-bin", status.SerializeToString()),)
