"""The message classes of bench.proto, compiled when they are first asked for.

They come from the official protobuf runtime and share nothing with the daemon's own codec, so
what they accept of the daemon's replies is an outside opinion.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import cast

import grpc_tools
from grpc_tools import protoc

_compile = cast("Callable[[list[str]], int]", protoc.main)  # pyright: ignore[reportUnknownMemberType]
_HERE = Path(__file__).parent
_WELL_KNOWN = Path(grpc_tools.__file__).parent / "_proto"


@cache
def protos() -> ModuleType:
    """The module that protoc makes of bench.proto: one attribute per message class."""
    with tempfile.TemporaryDirectory() as made:
        arguments = [f"-I{_HERE}", f"-I{_WELL_KNOWN}", f"--python_out={made}", "bench.proto"]
        if _compile(["protoc", *arguments]) != 0:
            raise RuntimeError("protoc refused bench.proto")
        return _module(Path(made) / "bench_pb2.py")


def _module(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
