"""The official protobuf runtime, for a second opinion on our bytes.

It compiles the `.proto` files itself and shares no code with the codec. It has no types, so it is
imported as something that is Any.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

import betterproto2

import pointsman.proto
from pointsman.proto.generated.message_pool import default_message_pool
from pointsman.proto.schema import Item, schema_of

from . import everything

M = TypeVar("M", bound=betterproto2.Message)

_FOLDERS: Final = (Path(pointsman.proto.__file__).parent, Path(__file__).parent)

ENVOYS_TYPES: Final = tuple(default_message_pool.type_to_url)
ALL_TYPES: Final = (*ENVOYS_TYPES, *everything.ALL)


def runtime(module: str) -> Any:
    return import_module(f"google.protobuf.{module}")


class DecodeError(Exception):
    """The official runtime does not take the bytes."""


class BadText(DecodeError):
    """It takes offence at a string that is not UTF-8, and at nothing before that."""


def parse(message_type: type[betterproto2.Message], data: bytes) -> Any:
    """The official message of *data*.

    Raises:
        DecodeError: it is not one.
    """
    message = new(message_type)
    try:
        message.ParseFromString(data)
    except runtime("message").DecodeError as error:
        raise (BadText if "UTF-8" in str(error) else DecodeError) from error
    return message


def loses_entries(theirs: Any) -> bool:
    """Whether the runtime kept back an entry of a map, as upb does with what it does not know.

    Other implementations ignore only the unknown field inside the entry, and so do we.
    """
    fields = theirs.DESCRIPTOR.fields_by_number
    unknown = runtime("unknown_fields").UnknownFieldSet(theirs)
    return any(is_map(fields.get(field.field_number)) for field in unknown) or any(
        loses_entries(part) for field, value in theirs.ListFields() for part in _parts(field, value)
    )


def is_map(field: Any) -> bool:
    message = None if field is None else field.message_type
    return message is not None and message.GetOptions().map_entry


def _parts(field: Any, value: Any) -> Iterable[Any]:
    """The messages in the value of a field."""
    if is_map(field):
        entry = field.message_type.fields_by_name["value"]
        return value.values() if entry.message_type is not None else ()
    if field.message_type is None:
        return ()
    return value if field.is_repeated else (value,)


def new(message_type: type[betterproto2.Message]) -> Any:
    """An empty official message of the type that has *message_type*'s place in the .proto files."""
    return runtime("message_factory").GetMessageClass(descriptor(message_type))()


def descriptor(message_type: type[betterproto2.Message]) -> Any:
    return _pool().FindMessageTypeByName(_full_name(message_type))


def services() -> Iterable[Any]:
    """The descriptors of the gRPC services that are declared beside the messages."""
    return [
        service
        for path in sorted(_FOLDERS[0].glob("*.proto"))
        for service in _pool().FindFileByName(path.name).services_by_name.values()
    ]


def ours(message_type: type[M], theirs: Any) -> M:
    """The message of our classes that says the same as the official one."""
    values: dict[str, object] = {}
    for field in schema_of(message_type).fields:
        value = getattr(theirs, field.name)
        if field.presence and not theirs.HasField(field.name):
            continue
        if field.key is not None:
            values[field.name] = _our_map(field.item, value)
        elif field.repeated:
            values[field.name] = [_our_value(field.item, item) for item in value]
        else:
            values[field.name] = _our_value(field.item, value)
    return message_type(**values)


def _our_map(item: Item, theirs: Mapping[Any, Any]) -> dict[object, object]:
    return {key: _our_value(item, theirs[key]) for key in theirs}


def _our_value(item: Item, theirs: Any) -> object:
    if item.message is not None:
        return ours(item.message, theirs)
    return theirs if item.enum is None else item.enum(theirs)


def _full_name(message_type: type[betterproto2.Message]) -> str:
    if message_type in everything.ALL:
        return f"pointsman.test.{message_type.__name__}"
    return default_message_pool.type_to_url[message_type].rpartition("/")[2]


@cache
def _pool() -> Any:
    """All our .proto files, as the official compiler understands them."""
    names = [path.name for folder in _FOLDERS for path in sorted(folder.glob("*.proto"))]
    with tempfile.TemporaryDirectory() as made:
        paths = [f"--proto_path={folder}" for folder in _FOLDERS]
        arguments = ["protoc", *paths, "--include_imports", f"--descriptor_set_out={made}/set"]
        code = import_module("grpc_tools.protoc").main([*arguments, *names])
        assert code == 0, "protoc refused our .proto files"
        compiled = Path(made, "set").read_bytes()
    pool = runtime("descriptor_pool").DescriptorPool()
    for file in runtime("descriptor_pb2").FileDescriptorSet.FromString(compiled).file:
        pool.Add(file)
    return pool
