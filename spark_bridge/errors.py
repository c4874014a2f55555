"""What can go wrong in the bridge, beyond what `offramp.errors` has.

OfframpError
├── BadOption          an option, a column or a value that the bridge cannot take; names the nearest one that it can
├── WrongCheckpoint    the checkpoint is another subscription's, or is no offset of this bridge
├── DataLoss           the broker has removed records that were asked for
├── Replaced           another query reads this subscription now
├── SparkGone          the session was stopped, or its JVM died: nothing can be handled any more
├── Refused            the sidecar said no and would say no again (see `offramp.errors` for its kinds)
└── Unavailable        not within `timeout`; a retry may help

Spark shows them in its own exception (`StreamingQueryException`, `AnalysisException`), with their text.
"""

import difflib
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


def nearest(word: str, known: Iterable[str]) -> str:
    """` Did you mean ...?`, or nothing. Case does not matter: Spark's options have none."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f' Did you mean "{by_lower[found[0]]}"?' if found else ""


def may_pass(error: grpc.RpcError) -> bool:
    """Whether the same call may work a moment later: nobody is there, or whoever was is just leaving."""
    return errors.status(error)[0] in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)


def translated(error: grpc.RpcError, address: str) -> OfframpError:
    """The error for a call that failed for good."""
    code, details = errors.status(error)
    match code:
        case grpc.StatusCode.UNIMPLEMENTED:
            return errors.Incompatible(
                f"{address}: the sidecar there is older than this bridge and does not serve what it asks for "
                f"({details}). Use a sidecar of the bridge's version, or a newer one"
            )
        case grpc.StatusCode.FAILED_PRECONDITION:
            return errors.Refused(f"{address}: {details}")
        case grpc.StatusCode.ABORTED:
            return Replaced(f"{address}: {details}. Two queries must not read one subscription: give each its own")
        case grpc.StatusCode.OUT_OF_RANGE:
            return DataLoss(f"{address}: {details}")
    refusal = errors.refusal(code, details, address)
    return refusal or errors.Unavailable(f"{address}: {details or code.name}")
