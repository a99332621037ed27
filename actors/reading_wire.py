"""How the daemon and the process that reads large bodies for it talk over a socket pair.

A message is a number of parts, each behind its length in eight bytes. Both ends block: the
daemon's is in a thread, and a blocked end holds no lock of the interpreter, so not even 64 MiB
that go from one to the other hold up a pick.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final

from pointsman.kernel.model import Buffer

APART: Final = 64 * 1024  # bytes of a byte string that is not copied through a pickle
_LENGTH: Final = struct.Struct("<Q")


class Gone(Exception):
    """The other end went away, or took too long."""


def send(peer: socket.socket, parts: Sequence[Buffer]) -> None:
    """Raises OSError."""
    peer.sendall(_LENGTH.pack(len(parts)))
    for part in parts:
        peer.sendall(_LENGTH.pack(len(part)))
        peer.sendall(part)


def receive(peer: socket.socket) -> list[bytes]:
    """The parts of a message. Raises Gone, OSError."""
    return [_exactly(peer, _number(peer)) for _ in range(_number(peer))]


def _number(peer: socket.socket) -> int:
    (number,) = _LENGTH.unpack(_exactly(peer, _LENGTH.size))
    return int(number)


def _exactly(peer: socket.socket, size: int) -> bytes:
    if not size:
        return b""
    data = peer.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise Gone
    return data


class _Packer(pickle.Pickler):
    """Leaves large byte strings out, so that they are copied once on their way."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.apart: list[bytes] = []

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is not bytes or len(obj) < APART:
            return None
        self.apart.append(obj)
        return len(self.apart) - 1


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: BytesIO, apart: Sequence[bytes]) -> None:
        super().__init__(file)
        self._apart = apart

    def persistent_load(self, pid: int) -> bytes:
        return self._apart[pid]


def pack(value: object) -> list[bytes]:
    """*value* as the parts of a message."""
    file = BytesIO()
    packer = _Packer(file)
    packer.dump(value)
    return [file.getvalue(), *packer.apart]


def unpack(parts: Sequence[bytes]) -> Any:
    """The value that `pack` made parts of."""
    return _Unpacker(BytesIO(parts[0]), parts[1:]).load()
