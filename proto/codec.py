"""Encoding and decoding of the generated messages, several times faster than they do it themselves.

Both directions are compiled from the messages' metadata, once per type. What they do is proto3:
unknown fields are stepped over and not kept, a message that occurs again is merged into the first,
an empty message that is present stays present.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NewType, TypeVar

import betterproto2
from grpclib.encoding.base import CodecBase

from .decoder import decoder_namespace, decoder_source
from .encoder import encoder_namespace, encoder_source
from .instances import slim
from .schema import MessageType, Schema, reachable, recursive
from .source import Namespace
from .wire import Malformed

M = TypeVar("M", bound=betterproto2.Message)

Prepared = NewType("Prepared", bytes)
"""A message that has been encoded before, to be sent as it is."""


class _Functions(dict[MessageType, Callable[..., Any]]):
    """One function per message type, compiled with all that it calls when it is first wanted."""

    def __init__(self, namespace: Namespace, source_of: Callable[[Schema, Namespace], str]) -> None:
        super().__init__()
        self._namespace = namespace
        self._source_of = source_of

    def __missing__(self, message_type: MessageType) -> Callable[..., Any]:
        self.compile(message_type)
        return self[message_type]

    def compile(self, message_type: MessageType) -> None:
        schemas = reachable(message_type)
        self._namespace.recursive |= recursive(schemas)
        for part, schema in schemas.items():
            if part not in self:
                slim(schema)
                source = self._source_of(schema, self._namespace)
                self[part] = self._namespace.define(self._namespace.function(part), source)


_decoders = _Functions(decoder_namespace(), decoder_source)
_encoders = _Functions(encoder_namespace(), encoder_source)


class DecodeError(ValueError):
    """Bytes that are not a message of the type wanted."""

    def __init__(self, message_type: str, reason: str) -> None:
        super().__init__(message_type, reason)
        self.message_type = message_type
        self.reason = reason

    def __str__(self) -> str:
        return f"not a {self.message_type}: {self.reason}"


def decode(message_type: type[M], data: bytes | memoryview) -> M:
    """Make a message of *data*.

    Its byte strings are copies, so *data* is not kept alive; those of a view are views. Text that
    is not UTF-8 has replacement characters.

    Raises:
        DecodeError: whatever is wrong with *data*.
    """
    try:
        message: M = _decoders[message_type](data, 0, len(data))
    except (IndexError, struct.error):
        raise DecodeError(message_type.__name__, "it is cut short") from None
    except Malformed as error:
        raise DecodeError(message_type.__name__, str(error)) from None
    return message


def encode(message: betterproto2.Message) -> bytes:
    """The bytes of *message*, whose values must be of their fields' types."""
    parts: list[bytes] = []
    _encoders[type(message)](message, parts.append)
    parts.reverse()
    return b"".join(parts)


class WireCodec(CodecBase):
    """Lets grpclib carry these messages, and replies that are bytes already."""

    def __init__(self, *message_types: MessageType) -> None:
        """Compile *message_types* now rather than when the first of them comes or goes."""
        for message_type in message_types:
            _decoders.compile(message_type)
            _encoders.compile(message_type)

    @property
    def __content_subtype__(self) -> str:
        return "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        """The bytes of *message*, which is of *message_type* or `Prepared`."""
        if type(message) is bytes:
            return message
        if type(message) is not message_type:
            raise TypeError(f"expected {message_type.__name__}, not {type(message).__name__}")
        return encode(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        return decode(message_type, data)
