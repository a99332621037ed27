"""The figures as a page: Prometheus' text or OpenMetrics, part by part, perhaps compressed.

A page may be megabytes long, and while it is written no request is answered. So the task gives
way after each family, or each part of one that is yielded in several; compression, which Python
does without its lock, is left to a thread.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, final

import anyio.lowlevel
import anyio.to_thread
from attrs import frozen
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .http import Headers, Request, Response
from .tallies import Tallies

END: Final = b"# EOF\n"
LEVEL: Final = 4  # of compression: twice as quick as the usual 9, and a tenth larger
_HEAD: Final = re.compile(rb"\A(?:# [A-Z]+ [^\n]*\n)+")
"""What a family begins with; a part of a family that has begun does not."""
Encoder = Callable[[Collector], bytes]


@final
@frozen(eq=False)
class _One(Collector):
    family: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.family,)


async def figures_page(registry: CollectorRegistry, request: Request) -> Response:
    """All families of *registry*, as *request* accepts them."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    body = await _text(registry, encode)
    headers: Headers = (("content-type", content_type), ("vary", "accept, accept-encoding"))
    if accepts_gzip(request.headers.get("accept-encoding", "")):
        compress = partial(gzip.compress, body, LEVEL, mtime=0)
        body = await anyio.to_thread.run_sync(compress)
        headers += (("content-encoding", "gzip"),)
    return Response(200, body, headers)


async def _text(registry: CollectorRegistry, encode: Encoder) -> bytes:
    parts: list[bytes] = []
    last = ""
    end = b""
    for family in registry.collect():
        part = _head(family, encode) if isinstance(family, Tallies) else encode(_One(family))
        end = END if part.endswith(END) else b""
        part = part.removesuffix(END)
        parts.append(_HEAD.sub(b"", part) if family.name == last else part)
        if isinstance(family, Tallies):
            parts.append(family.lines().encode())
        last = family.name
        await anyio.lowlevel.checkpoint()
    return b"".join([*parts, end])


def _head(family: Metric, encode: Encoder) -> bytes:
    return encode(_One(Metric(family.name, family.documentation, family.type)))


def accepts_gzip(header: str) -> bool:
    """Whether an ``accept-encoding`` allows gzip."""
    for item in header.lower().split(","):
        coding, *settings = (part.strip() for part in item.split(";"))
        if coding == "gzip":
            return not any(_is_zero(setting) for setting in settings)
    return False


def _is_zero(setting: str) -> bool:
    name, _, value = setting.partition("=")
    return name.strip() == "q" and value.strip().strip("0.") == ""
