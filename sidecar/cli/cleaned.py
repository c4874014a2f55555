"""Messages of a sidecar as a terminal may show them: names and reasons in them come from apps and producers."""

from collections.abc import MutableMapping, MutableSequence
from typing import TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from sidecar.model.text import clean

M = TypeVar("M", bound=Message)


def cleaned(message: M) -> M:
    """A copy of the message whose texts are cleaned, wherever in it they are. Bytes stay as they are."""
    copy = type(message)()
    copy.CopyFrom(message)
    _clean(copy)
    return copy


def _clean(message: Message) -> None:
    for field, value in message.ListFields():
        is_text = field.type == FieldDescriptor.TYPE_STRING
        if isinstance(value, MutableMapping):
            # Every map of the protocol is one of texts.
            texts = {clean(key): clean(text) for key, text in value.items()}
            value.clear()
            value.update(texts)
        elif isinstance(value, MutableSequence):
            if is_text:
                value[:] = [clean(text) for text in value]
            elif field.message_type is not None:
                for one in value:
                    _clean(one)
        elif is_text:
            setattr(message, field.name, clean(value))
        elif field.message_type is not None:
            _clean(value)
