"""Credentials from a program that the kubeconfig names, such as a cloud provider's.

The program runs as our child, with a time limit, and is killed when we are cancelled. If it fails,
that is an error: there is no request without a credential.
"""

from __future__ import annotations

import os
import subprocess
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Final, Literal, final

import anyio
import msgspec
from attrs import frozen
from msgspec import Struct

from .access import TlsMaterial
from .errors import AccessError

PATIENCE: Final = 60.0  # seconds for the program to answer
EXTENSION: Final = "client.authentication.k8s.io/exec"
SHARE_OF_LIFE: Final = 0.8  # after which a credential is asked for again
SHORTEST_LIFE: Final = 10.0  # seconds; one that claims less is not asked for more often


class Variable(Struct, frozen=True):
    name: str
    value: str


class ExecConfig(Struct, frozen=True, rename="camel"):
    """The ``exec`` entry of a user."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: Literal["Never", "IfAvailable", "Always"] = "IfAvailable"


class CredentialStatus(Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class ExecCredential(Struct, frozen=True, rename="camel"):
    """What the program prints."""

    api_version: str
    kind: Literal["ExecCredential"]
    status: CredentialStatus


@final
@frozen
class ExecPlugin:
    """A program and how it is called."""

    config: ExecConfig
    directory: str
    """The kubeconfig's, to which a relative command refers."""
    cluster: Mapping[str, Any]
    """The cluster's entry in the kubeconfig."""

    @classmethod
    def read(cls, entry: object, directory: str, cluster: Mapping[str, Any]) -> ExecPlugin:
        """Raises AccessError: the entry is malformed, or wants a terminal."""
        try:
            config = msgspec.convert(entry, ExecConfig)
        except msgspec.ValidationError as exc:
            raise AccessError(f"the kubeconfig's exec entry: {exc}") from exc
        if config.interactive_mode == "Always":
            raise AccessError(f"exec plugin {config.command!r} wants a terminal")
        return cls(config, directory, cluster)

    async def run(self, host: str, material: TlsMaterial | None) -> CredentialStatus:
        """Ask the program for a credential.

        Raises:
            AccessError: it did not give one.
        """
        environment = {**os.environ, "KUBERNETES_EXEC_INFO": self._info(host, material)}
        environment |= {variable.name: variable.value for variable in self.config.env or ()}
        try:
            with anyio.fail_after(PATIENCE):
                done = await anyio.run_process(
                    [self._command, *(self.config.args or ())],
                    stdin=subprocess.DEVNULL,
                    env=environment,
                    check=False,
                )
        except TimeoutError:
            raise self._failed(f"no answer within {PATIENCE:g} s") from None
        except OSError as exc:
            raise self._failed(f"{exc.strerror or exc}. {self.config.install_hint}") from exc
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise self._failed(f"exit status {done.returncode}: {said[-300:]}")
        return self._credential(done.stdout)

    @property
    def _command(self) -> str:
        """Looked up in PATH if it is a bare name, else relative to the kubeconfig."""
        command = self.config.command
        return command if "/" not in command else str(PurePath(self.directory, command))

    def _failed(self, reason: str) -> AccessError:
        return AccessError(f"exec plugin {self.config.command!r}: {reason.strip()}")

    def _info(self, host: str, material: TlsMaterial | None) -> str:
        spec: dict[str, object] = {"interactive": False}
        if self.config.provide_cluster_info:
            spec["cluster"] = self._cluster_info(host, material)
        info = {"apiVersion": self.config.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(info).decode()

    def _cluster_info(self, host: str, material: TlsMaterial | None) -> dict[str, object]:
        copied = ("tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
        info: dict[str, object] = {n: self.cluster[n] for n in copied if n in self.cluster}
        info["server"] = host
        if material is not None and material.authorities:
            info["certificate-authority-data"] = b64encode(material.authorities.encode()).decode()
        for extension in self.cluster.get("extensions") or ():
            if extension.get("name") == EXTENSION:
                info["config"] = extension.get("extension")
        return info

    def _credential(self, output: bytes) -> CredentialStatus:
        try:
            credential = msgspec.json.decode(output, type=ExecCredential)
        except msgspec.DecodeError as exc:
            raise self._failed(f"its output is no ExecCredential: {exc}") from None
        if credential.api_version != self.config.api_version:
            raise self._failed(f"it speaks {credential.api_version}")
        status = credential.status
        if not status.token and not (status.client_certificate_data and status.client_key_data):
            raise self._failed("it gave neither a token nor a certificate with its key")
        return status


def good_for(status: CredentialStatus, now: datetime) -> float:
    """Seconds after which the program should be asked again; for ever if it does not say."""
    expires = status.expiration_timestamp
    if expires is None:
        return float("inf")
    if expires.tzinfo is None:
        expires = expires.replace(tzinfo=UTC)
    return max(SHORTEST_LIFE, (expires - now).total_seconds() * SHARE_OF_LIFE)
