"""What Pulsar says, in one sentence and as one of our errors."""

import _pulsar

from sidecar.model.errors import BrokerError, NotFound, OutOfRoom, Refused, TooLarge, Unavailable

_Result = _pulsar.Result

_NOT_FOUND = {_Result.TopicNotFound, _Result.SubscriptionNotFound}
_REFUSED = {
    _Result.AuthenticationError: "the broker does not take these credentials",
    _Result.AuthorizationError: "this role has no right to do so",
    _Result.ErrorGettingAuthenticationData: "the credentials cannot be read",
    _Result.InvalidTopicName: "the name of the topic is not one",
    _Result.InvalidUrl: "the url is not one",
    _Result.InvalidConfiguration: "the options do not go together",
    _Result.IncompatibleSchema: "the topic has a schema that takes no plain bytes",
    _Result.UnsupportedVersionError: "the broker is too old for this",
    _Result.NotAllowedError: "the broker does not allow it",
    _Result.OperationNotSupported: "the broker cannot do this",
    _Result.TopicTerminated: "the topic was terminated: it takes no more messages",
    _Result.ProducerFenced: "another producer has the topic for itself",
}
_BUSY = {_Result.ConsumerBusy, _Result.ConsumerAssignError}
_FULL = {_Result.ProducerBlockedQuotaExceededError, _Result.ProducerBlockedQuotaExceededException}
_VAGUE = {_Result.ConnectError, _Result.Timeout, _Result.LookupError, _Result.UnknownError, _Result.NotConnected}
_AWAY = {
    _Result.ConnectError: "it cannot be reached",
    _Result.Timeout: "it does not answer",
    _Result.NotConnected: "the connection is lost",
    _Result.LookupError: "it cannot say which broker has the topic",
    _Result.BrokerMetadataError: "it has trouble with its own metadata",
    _Result.BrokerPersistenceError: "it has trouble with its own storage",
    _Result.ServiceUnitNotReady: "the topic is just moving to another broker",
    _Result.TooManyLookupRequestException: "it is asked too much at once",
    _Result.AlreadyClosed: "the connection was closed",
    _Result.ProducerQueueIsFull: "too much is being published at once",
    _Result.MemoryBufferIsFull: "too much is being published at once",
}


def translate(error: BaseException, doing: str) -> BrokerError:
    """A library's exception as ours. `doing` is what was tried: consume topic X."""
    if isinstance(error, BrokerError):
        return error
    if isinstance(error, _pulsar.PulsarException):
        return of_result(_result(error), doing)
    return Unavailable(f"Pulsar: cannot {doing}: {error}")


def is_vague(error: BaseException) -> bool:
    """The library only says that it cannot reach the broker."""
    return isinstance(error, _pulsar.PulsarException) and _result(error) in _VAGUE


def _result(error: BaseException) -> _pulsar.Result:
    found = next((one for one in _Result.__members__.values() if type(error).__name__ == one.name), None)
    return found or _Result.UnknownError


def of_result(result: _pulsar.Result, doing: str) -> BrokerError:
    if result in _NOT_FOUND:
        return NotFound(f"Pulsar: cannot {doing}: there is no such topic or namespace, and the broker makes none")
    if result in _BUSY:
        return Refused(
            f"Pulsar: cannot {doing}: the subscription has consumers already that it cannot share with. Either another "
            "sidecar has it exclusively, or they use another subscription_type"
        )
    if result in _FULL:
        return OutOfRoom(f"Pulsar: cannot {doing}: the backlog quota of the topic is used up")
    if result == _Result.MessageTooBig:
        return TooLarge(f"Pulsar: cannot {doing}: the broker takes no message of this size")
    if result in _REFUSED:
        return Refused(f"Pulsar: cannot {doing}: {_REFUSED[result]}")
    return Unavailable(f"Pulsar: cannot {doing}: {_AWAY.get(result, f'it says {result.name}')}")
