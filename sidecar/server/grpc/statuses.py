"""Errors as gRPC statuses: a code and a sentence for people, a reason and metadata for programs."""

from typing import NoReturn
from urllib.parse import quote

import grpc
import grpc.aio

from offramp.v1 import error_pb2 as pb
from sidecar.model import errors
from sidecar.model.reasons import Reason
from sidecar.model.version import PROTOCOL

#: trailing metadata with a google.rpc.Status, as gRPC libraries look for it
DETAILS = "grpc-status-details-bin"
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"

#: of broker errors; the first match counts, so subclasses stand before their bases
_CODES: tuple[tuple[type[errors.OfframpError], grpc.StatusCode], ...] = (
    (errors.OutOfRoom, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
    (errors.TooLarge, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.Refused, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.NotFound, grpc.StatusCode.NOT_FOUND),
    (errors.LaneGone, grpc.StatusCode.ABORTED),
    (errors.Fenced, grpc.StatusCode.ABORTED),
    (errors.Corrupt, grpc.StatusCode.DATA_LOSS),
)

#: characters of a status text, and bytes of both its copies when encoded: clients refuse more than 8 KiB of headers
_MAX_TEXT, _MAX_ENCODED = 2_000, 6_000
#: characters of one value of the metadata
_MAX_VALUE = 200


async def abort(context: "grpc.aio.ServicerContext[bytes, bytes]", error: errors.OfframpError) -> NoReturn:
    """End the call with the status of this error. Raises once the client has read the status; never returns."""
    code, text = code_of(error), _cut(str(error))
    metadata = (*(context.trailing_metadata() or ()), (DETAILS, _details(code, text, error)))
    await context.abort(code, text, metadata)


def code_of(error: errors.OfframpError) -> grpc.StatusCode:
    if isinstance(error, errors.ProtocolError):
        return grpc.StatusCode[error.status]
    return next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)


def _details(code: grpc.StatusCode, text: str, error: errors.OfframpError) -> bytes:
    # A bug has no class of its own, and so no code.
    reason = Reason.INTERNAL if code is grpc.StatusCode.INTERNAL else error.reason
    metadata = {name: str(value)[:_MAX_VALUE] for name, value in error.metadata.items()}
    metadata["retryable"] = "true" if reason.retryable else "false"
    info = pb.ErrorInfo(reason=reason.name, domain=PROTOCOL, metadata=metadata)
    status = pb.ErrorStatus(code=code.value[0], message=text)
    status.details.add(type_url=_ERROR_INFO, value=info.SerializeToString())
    return status.SerializeToString()


def _cut(text: str) -> str:
    """Cut the text so that it stays short when encoded: in percent for the one copy, in base64 for the other."""
    text = text[:_MAX_TEXT]
    while (size := len(quote(text, errors="replace"))) + size * 4 // 3 > _MAX_ENCODED and len(text) > 1:
        text = text[: len(text) // 2]
    return text
