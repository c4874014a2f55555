"""Errors of the bridge, in addition to those of `offramp.errors`.

OfframpError
├── BadOption          an option, column or value that the bridge cannot use; names the nearest valid one
├── WrongCheckpoint    the checkpoint belongs to another subscription, or is not an offset of this bridge
├── DataLoss           the broker no longer has records that were to be read
├── Replaced           another query reads this subscription now
├── SparkGone          the session was stopped, or its JVM died
├── Refused            the sidecar refuses; a retry does not help (see `offramp.errors` for its kinds)
└── Unavailable        no answer within `timeout`; a retry may help

Spark wraps them in its own exceptions (`StreamingQueryException`, `AnalysisException`), with their text.
"""

import difflib
import re
from collections.abc import Iterable

import grpc

from offramp import errors
from offramp.errors import OfframpError


class BadOption(OfframpError, ValueError):
    pass


class WrongCheckpoint(OfframpError):
    pass


class DataLoss(OfframpError):
    pass


class Replaced(OfframpError):
    pass


class SparkGone(OfframpError):
    pass


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean ...?`, or an empty string. Ignores case, as Spark's options do."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f' Did you mean "{by_lower[found[0]]}"?' if found else ""


def is_transient(error: grpc.RpcError) -> bool:
    """Whether a retry may work: no sidecar is there, or it is shutting down."""
    failure = errors.Failure.of(error)
    if failure.reason:
        return failure.retryable
    return failure.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)


def from_rpc_error(error: grpc.RpcError, address: str) -> OfframpError:
    """The error to raise for a call that is not retried."""
    failure = errors.Failure.of(error)
    text = f"{address}: {failure.text or failure.code.name}"
    match failure.reason:
        case "READER_REPLACED":
            return errors.with_reason(
                Replaced(f"{text}. Two queries must not read one subscription: give each its own"), failure
            )
        case "OUT_OF_RANGE":
            return errors.with_reason(DataLoss(text), failure)
    if failure.code is grpc.StatusCode.UNIMPLEMENTED:
        return errors.Incompatible(
            f"{address}: the sidecar there is older than this bridge and does not serve what it asks for "
            f"({failure.text}). Use a sidecar of the bridge's version, or a newer one"
        )
    return failure.refusal(address) or errors.with_reason(errors.Unavailable(text), failure)


#: the line of a Python traceback with the error, wherever Spark has put it
_RAISED = re.compile(r"^(?:spark_bridge|offramp)\.(?:\w+\.)*\w+: (.+)$")


def root_cause(error: BaseException) -> str:
    """The message of the last error that the bridge raised, without the Python and JVM stack traces around it."""
    text = str(error)
    for line in reversed(text.splitlines()):
        if found := _RAISED.match(line.strip()):
            return found[1]
    return text.split("\n\nJVM stacktrace", maxsplit=1)[0].strip()
