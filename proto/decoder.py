"""Decoders: one function per message type, which walks its part of the buffer once.

``decode_X(data, pos, end, m=None)`` reads an X from ``data[pos:end]`` into *m* or a new instance.
A field that claims to be longer than its message is found out at the message's end: positions only
grow, so one comparison there covers every field. Instances are made without ``__init__``; what the
wire does not set is read from defaults on the class.

Strings that are not UTF-8 are decoded with replacement characters: attributes and metadata may
hold what a client sent, and a client must not be able to end the stream of its request, nor put
into a string what cannot be encoded again. Header values are bytes and stay as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import betterproto2
from attrs import frozen

from .schema import FIXED_FORMATS, Field, Item, Schema
from .source import Namespace, block, lines
from .wire import LENGTH, MAX_DEPTH, Malformed, continue_short, continue_varint, skip


class _Members(dict[int, betterproto2.Enum]):
    """An enum's members by number; a number without a name becomes a member without one."""

    def __init__(self, enum: type[betterproto2.Enum]) -> None:
        super().__init__((member.value, member) for member in enum)
        self._enum = enum

    def __missing__(self, number: int) -> betterproto2.Enum:
        signed = (number & 0xFFFF_FFFF ^ 0x8000_0000) - 0x8000_0000
        return self[signed] if signed in self else self._enum(signed)


def _chosen(message: betterproto2.Message, group: tuple[str, ...]) -> str:
    """The member of a oneof that is set, or an empty string."""
    return next((name for name in group if getattr(message, name) is not None), "")


def decoder_namespace() -> Namespace:
    helpers = {
        "Malformed": Malformed,
        "chosen": _chosen,
        "continue_short": continue_short,
        "continue_varint": continue_varint,
        "new": object.__new__,
        "skip": skip,
    }
    unpack = {f"unpack_{kind}": struct.Struct(f).unpack_from for kind, f in FIXED_FORMATS.items()}
    return Namespace("decode", {**helpers, **unpack})


def decoder_source(schema: Schema, namespace: Namespace) -> str:
    """The function for *schema*, behind those for the entries of its maps."""
    return _Writer(schema, namespace).source()


_READ_VARINT: Final = """\
n = data[pos]
pos += 1
if n > 127:
    n, pos = continue_varint(data, pos, n)"""

# Lengths of up to 16 KB have two bytes: worth reading in place.
_READ_LENGTH: Final = """\
n = data[pos]
pos += 1
if n > 127:
    high = data[pos]
    if high < 128:
        n += (high << 7) - 128
        pos += 1
    else:
        n, pos = continue_short(data, pos, n)
stop = pos + n"""

_READ_TAG: Final = """\
tag = data[pos]
pos += 1
if tag > 127:
    tag, pos = continue_short(data, pos, tag)"""

_CHECK_DEPTH: Final = """\
if depth < 0:
    raise Malformed("messages are nested too deeply")"""

_FROM_VARINT: Final = {
    betterproto2.TYPE_BOOL: "n != 0",
    betterproto2.TYPE_INT32: "(n & 0xFFFF_FFFF ^ 0x8000_0000) - 0x8000_0000",
    betterproto2.TYPE_INT64: "(n ^ 0x8000_0000_0000_0000) - 0x8000_0000_0000_0000",
    betterproto2.TYPE_UINT32: "n & 0xFFFF_FFFF",
    betterproto2.TYPE_UINT64: "n",
    betterproto2.TYPE_SINT32: "(n & 0xFFFF_FFFF) >> 1 ^ -(n & 1)",
    betterproto2.TYPE_SINT64: "n >> 1 ^ -(n & 1)",
}

_FROM_BYTES: Final = {
    betterproto2.TYPE_STRING: 'str(data[pos:stop], "utf-8", "replace")',
    betterproto2.TYPE_BYTES: "data[pos:stop]",
}

_Store = Callable[[str], str]
"""From an expression to the statement that keeps its value."""


@frozen
class _Writer:
    """Writes the decoder of one message type.

    The generated code has *data*, *pos* and *end* in common with its callers, reads into *n*, and
    has the end of the value at hand in *stop*.
    """

    schema: Schema
    namespace: Namespace

    @property
    def deep(self) -> bool:
        return self.schema.type in self.namespace.recursive

    def source(self) -> str:
        maps = (self._entry(field) for field in self.schema.fields if field.key)
        return "\n\n".join((*maps, self._message()))

    def _message(self) -> str:
        repeated = (field.name for field in self.schema.fields if field.repeated)
        branches = dict(branch for field in self.schema.fields for branch in self._branches(field))
        return block(
            f"def {self.namespace.function(self.schema.type)}({self._parameters('m=None')}):",
            lines(
                _CHECK_DEPTH if self.deep else "",
                self._instance(),
                *(f"append_{name} = m.{name}.append" for name in repeated),
                _walk(branches),
                "return m",
            ),
        )

    def _entry(self, field: Field) -> str:
        """A function that reads one entry of a map and returns its key and its value."""
        items = {"key": field.key or field.item, "value": field.item}
        branches = {
            number << 3 | item.wire_type: self._read(item, f"{name} = {{}}".format, existing=name)
            for number, (name, item) in enumerate(items.items(), 1)
        }
        return block(
            f"def {self._entry_function(field)}({self._parameters()}):",
            lines(
                *(f"{name} = {self._default(item)}" for name, item in items.items()),
                _walk(branches),
                self._empty_message(field.item),
                "return key, value",
            ),
        )

    def _empty_message(self, item: Item) -> str:
        """An entry without a value has an empty one."""
        if item.message is None:
            return ""
        return block("if value is None:", f"value = {self._from_message(item, 'end, end')}")

    def _parameters(self, *extra: str) -> str:
        depth = [f"depth={MAX_DEPTH}"] if self.deep else []
        return ", ".join(("data", "pos", "end", *extra, *depth))

    def _instance(self) -> str:
        """Make *m* unless there is one, and note which members of its oneofs are set."""
        groups = self.schema.groups.items()
        fresh = lines(
            f"m = new({self.namespace.name(self.schema.type)})",
            *(f"m.{f.name} = {f.container}" for f in self.schema.fields if f.container),
            *(f'chosen_{group} = ""' for group, _ in groups),
        )
        known = lines(*(f"chosen_{group} = chosen(m, {members})" for group, members in groups))
        return lines(block("if m is None:", fresh), block("else:", known) if known else "")

    def _branches(self, field: Field) -> Iterator[tuple[int, str]]:
        """The code for a field under each of the tags that can announce it."""
        with_length = field.number << 3 | LENGTH
        tag = field.number << 3 | field.item.wire_type
        if field.key is not None:
            depth = ", depth" if self.deep else ""
            call = f"{self._entry_function(field)}(data, pos, stop{depth})"
            store = f"key, value = {call}\nm.{field.name}[key] = value"
            yield with_length, lines(_READ_LENGTH, store, "pos = stop")
        elif field.repeated:
            read = self._read(field.item, f"append_{field.name}({{}})".format)
            yield tag, read
            if tag != with_length:
                yield with_length, _packed(read)
        else:
            read = self._read(field.item, f"m.{field.name} = {{}}".format, f"m.{field.name}")
            yield tag, lines(_choose(field), read)

    def _read(self, item: Item, store: _Store, existing: str = "None") -> str:
        """Read one value and store it; merge a message into the *existing* one."""
        if item.kind in FIXED_FORMATS:
            size = struct.calcsize(FIXED_FORMATS[item.kind])
            return lines(f"(n,) = unpack_{item.kind}(data, pos)", store("n"), f"pos += {size}")
        if item.enum is not None:
            return lines(_READ_VARINT, store(f"{self._members(item.enum)}[n]"))
        if item.kind in _FROM_VARINT:
            return lines(_READ_VARINT, store(_FROM_VARINT[item.kind]))
        value = _FROM_BYTES.get(item.kind) or self._from_message(item, f"pos, stop, {existing}")
        return lines(_READ_LENGTH, store(value), "pos = stop")

    def _from_message(self, item: Item, where: str) -> str:
        assert item.message is not None
        counted = self.deep and item.message in self.namespace.recursive
        depth = ", depth=depth - 1" if counted else ""
        return f"{self.namespace.function(item.message)}(data, {where}{depth})"

    def _entry_function(self, field: Field) -> str:
        return f"{self.namespace.function(self.schema.type)}_{field.name}"

    def _members(self, enum: type[betterproto2.Enum]) -> str:
        name = f"members_{self.namespace.name(enum)}"
        self.namespace.globals.setdefault(name, _Members(enum))
        return name

    def _default(self, item: Item) -> str:
        return repr(item.default) if item.enum is None else f"{self._members(item.enum)}[0]"


def _walk(branches: Mapping[int, str]) -> str:
    """Read fields until the end, by the branch for their tag; step over all others."""
    unknown = "pos = skip(data, pos, tag)"
    ways = (block(f"elif tag == {tag}:", code) for tag, code in branches.items())
    choice = lines(*ways, block("else:", unknown)).removeprefix("el") if branches else unknown
    overrun = 'raise Malformed("a field runs over the end of its message")'
    return lines(
        block("while pos < end:", lines(_READ_TAG, choice)), block("if pos != end:", overrun)
    )


def _choose(field: Field) -> str:
    """Clear the member of the field's oneof that is set, if that is another one."""
    if field.group is None:
        return ""
    chosen = f"chosen_{field.group}"
    clear = block(f"if {chosen}:", f"setattr(m, {chosen}, None)")
    return block(f'if {chosen} != "{field.name}":', lines(clear, f'{chosen} = "{field.name}"'))


def _packed(read: str) -> str:
    """Read values until the end of the length that precedes them."""
    overrun = 'raise Malformed("a packed value runs over the end of its field")'
    return lines(_READ_LENGTH, block("while pos < stop:", read), block("if pos != stop:", overrun))
