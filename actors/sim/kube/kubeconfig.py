"""The file that tells kubectl and other clients where the server is and who they are."""

from __future__ import annotations

import os
from base64 import b64encode
from pathlib import Path
from typing import Final

import msgspec
from attrs import frozen

from .certificates import KeyPair
from .objects import Object

NAME: Final = "pointsman-sim"


@frozen(kw_only=True)
class Access:
    """How a client reaches the server."""

    url: str
    authority: bytes = b""
    """The certificate, in PEM, that the server's is signed by."""
    token: str = ""
    client: KeyPair | None = None

    def kubeconfig(self, namespace: str = "default") -> Object:
        cluster = {"server": self.url} | _data(**{"certificate-authority-data": self.authority})
        user: Object = {"token": self.token} if self.token else {}
        if self.client is not None:
            pair = {
                "client-certificate-data": self.client.certificate,
                "client-key-data": self.client.key,
            }
            user |= _data(**pair)
        context = {"cluster": NAME, "user": NAME, "namespace": namespace}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": NAME, "cluster": cluster}],
            "users": [{"name": NAME, "user": user}],
            "contexts": [{"name": NAME, "context": context}],
            "current-context": NAME,
        }


def _data(**files: bytes) -> dict[str, str]:
    return {name: b64encode(content).decode() for name, content in files.items() if content}


def write_kubeconfig(path: Path, access: Access) -> None:
    """Write the file, which only its owner can read; raises OSError when it cannot be written."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(msgspec.yaml.encode(access.kubeconfig()))
    draft.replace(path)
