"""YAML with Kubernetes objects: files, and the bodies of requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, final

import yaml
from attrs import frozen

from pointsman.kernel.errors import KernelError

from .objects import Object, is_list, is_mapping

_ORDER: Final = ("CustomResourceDefinition", "Namespace")
"""What others need is created before them."""


class BadManifest(KernelError):
    """A file that cannot be loaded."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class _Loader(yaml.SafeLoader):
    """Reads YAML as JSON data: what looks like a time stays a text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(text: bytes | str) -> Any:
    """The one document of *text*.

    Raises:
        ValueError: it is no YAML.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


@final
@frozen
class Manifest:
    """An object, and the file it is from."""

    path: Path
    object: Object


def load_manifests(paths: Iterable[Path]) -> list[Manifest]:
    """The objects of all files, in an order in which they can be created.

    Raises:
        BadManifest: one of the files cannot be read or holds something else.
    """
    manifests = [Manifest(path, obj) for path in paths for obj in _objects(path)]
    return sorted(manifests, key=_rank)


def _rank(manifest: Manifest) -> int:
    kind = manifest.object["kind"]
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def _objects(path: Path) -> Iterator[Object]:
    try:
        documents: list[Any] = list(yaml.load_all(path.read_bytes(), Loader=_Loader))
    except OSError as error:
        raise BadManifest(path, error.strerror or str(error)) from None
    except yaml.YAMLError as error:
        raise BadManifest(path, " ".join(str(error).split())) from None
    for number, document in enumerate(documents, 1):
        if document is not None:
            yield from _flattened(document, path, number)


def _flattened(document: object, path: Path, number: int) -> Iterator[Object]:
    """The objects of one document: itself, or the items of a list."""
    if not is_mapping(document) or not isinstance(document.get("kind"), str):
        raise BadManifest(path, f"document {number} is no Kubernetes object: it has no kind")
    items = document.get("items")
    if document["kind"].endswith("List") and is_list(items):
        for item in items:
            yield from _flattened(item, path, number)
    else:
        yield document
