"""Where the API server is and who we are, read by the configuration layer of ``kubernetes``.

That package is large, so it is imported when there is something to read, in a worker thread, where
its blocking belongs as well. What it leaves undone is done here: programs that give credentials
are run by `exec_plugin`, token files are read again with everything else, keys leave no files
behind, and a user without a usable credential is an error instead of an anonymous request.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol, cast, final

import anyio.to_thread
from attrs import evolve, field, frozen

from .access import Access, Login, TlsMaterial, tls_context
from .errors import AccessError
from .exec_plugin import CredentialStatus, ExecPlugin, good_for

READ_AGAIN: Final = 60.0  # seconds after which files are read again
SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


class Configuration(Protocol):
    """The part of ``kubernetes.client.Configuration`` that is used."""

    host: str
    ssl_ca_cert: str | None
    cert_file: str | None
    key_file: str | None
    verify_ssl: bool
    tls_server_name: str | None
    proxy: str | None

    def auth_settings(self) -> Mapping[str, Mapping[str, Any]]: ...


@final
@frozen
class InCluster:
    """The service account of the pod that we run in."""

    environ: Mapping[str, str] = field(repr=False)
    directory: str = SERVICE_ACCOUNT

    async def read(self) -> Access:
        """Raises AccessError."""
        return await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)

    def _read(self) -> Access:
        with _explained("the service account"):
            module = import_module("kubernetes.config.incluster_config")
            configuration = _configuration()
            loader = module.InClusterConfigLoader(
                token_filename=f"{self.directory}/token",
                cert_filename=f"{self.directory}/ca.crt",
                environ=self.environ,
            )
            loader.load_and_set(configuration)
            return _access(configuration)


@final
@frozen
class Kubeconfig:
    """A kubeconfig file, or several with colons between them, and a context in it."""

    path: str
    context: str = ""
    """Empty: the file's current one."""

    async def read(self) -> Access:
        """Raises AccessError."""
        access, plugin = await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
        if plugin is None:
            return access
        status = await plugin.run(access.host, access.material)
        finish = partial(_with_credential, access, status)
        return await anyio.to_thread.run_sync(finish, abandon_on_cancel=True)

    def _read(self) -> tuple[Access, ExecPlugin | None]:
        with _explained(f"kubeconfig {self.path}"), TemporaryDirectory() as scratch:
            module = import_module("kubernetes.config.kube_config")
            merged = module.KubeConfigMerger(self.path).config
            if merged is None:
                raise AccessError("there is no such file")
            loader = module.KubeConfigLoader(
                merged,
                active_context=self.context or None,
                config_base_path=None,
                temp_file_path=scratch,
            )
            names = loader.current_context["context"]
            cluster, directory = _entry(merged, "clusters", names["cluster"])
            user, _ = _entry(merged, "users", names["user"]) if names.get("user") else ({}, "")
            _refuse_what_is_ignored(cluster, user)
            # The loader would log that the program failed, and go on without a credential.
            call = user.pop("exec", None)
            configuration = _configuration()
            loader.load_and_set(configuration)
            access = _access(configuration)
            if call is not None:
                return access, ExecPlugin.read(call, directory, cluster)
            if user and not access.headers and not (access.material and access.material.key):
                raise AccessError(f"user {names['user']!r} has no usable credential")
            return access, None


def login(
    *, kubeconfig: str = "", context: str = "", environ: Mapping[str, str] = os.environ
) -> Login:
    """Access by the first that there is: *kubeconfig*, ``KUBECONFIG``, the service account of the
    pod, ``~/.kube/config``."""
    path = kubeconfig or environ.get("KUBECONFIG", "")
    if not path and not context and environ.get("KUBERNETES_SERVICE_HOST"):
        return Login(InCluster(environ).read)
    return Login(Kubeconfig(path or "~/.kube/config", context).read)


def _configuration() -> Configuration:
    configuration = import_module("kubernetes.client").Configuration()
    configuration.proxy = None  # what the environment says is for the outside of the cluster
    return cast("Configuration", configuration)


def _entry(merged: Any, section: str, name: str) -> tuple[dict[str, Any], str]:
    """What a section of the kubeconfig says under *name*, and the directory of the file."""
    node = merged[section].get_with_name(name)
    return node.value[section.removesuffix("s")] or {}, os.path.dirname(os.path.abspath(node.path))


def _refuse_what_is_ignored(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> None:
    """Settings that would be passed over, and must not be."""
    if not str(cluster.get("server", "")).startswith(("http://", "https://")):
        raise AccessError("the cluster's server is no http or https URL")
    if cluster.get("proxy-url") and cluster.get("tls-server-name"):
        raise AccessError("tls-server-name does not work behind a proxy-url")
    if any(name == "as" or name.startswith("as-") for name in user):
        raise AccessError("impersonation ('as') is not supported")


def _access(configuration: Configuration) -> Access:
    host = configuration.host.rstrip("/")
    material = _material(configuration) if host.startswith("https:") else None
    return Access(
        host=host,
        headers=_headers(configuration),
        material=material,
        ssl_context=None if material is None else tls_context(material),
        server_name=configuration.tls_server_name or "",
        proxy=configuration.proxy,
        good_for=READ_AGAIN,
    )


def _headers(configuration: Configuration) -> dict[str, str]:
    settings = configuration.auth_settings().values()
    return {
        setting["key"]: _header_value(setting["value"]) for setting in settings if setting["value"]
    }


def _header_value(value: str) -> str:
    """A token as a file may have it; an unfit one is refused here, where it is not quoted."""
    value = value.strip()
    if not (value.isascii() and value.isprintable()):
        raise AccessError("the token has characters that no header may have")
    return value


def _material(configuration: Configuration) -> TlsMaterial:
    return TlsMaterial(
        authorities=_text(configuration.ssl_ca_cert),
        certificate=_text(configuration.cert_file),
        key=_text(configuration.key_file),
        verify=configuration.verify_ssl,
    )


def _text(path: str | None) -> str:
    """A file's PEM, without the comments in other letters that authorities have between theirs."""
    return Path(path).read_text(encoding="ascii", errors="ignore") if path else ""


def _with_credential(access: Access, status: CredentialStatus) -> Access:
    """*access* with what a program gave; blocks."""
    with _explained("the exec plugin's credential"):
        if status.token:
            access = evolve(
                access, headers={"authorization": f"Bearer {_header_value(status.token)}"}
            )
        if status.client_certificate_data and access.material is not None:
            material = evolve(
                access.material,
                certificate=status.client_certificate_data,
                key=status.client_key_data,
            )
            access = evolve(access, material=material, ssl_context=tls_context(material))
        return evolve(access, good_for=good_for(status, datetime.now(UTC)))


@contextmanager
def _explained(source: str) -> Generator[None, None, None]:
    """Turn whatever goes wrong with a configuration into an AccessError that names *source*."""
    try:
        yield
    except ModuleNotFoundError as exc:
        raise AccessError(f"Kubernetes discovery needs the package {exc.name!r}") from exc
    except AccessError as exc:
        raise AccessError(f"{source}: {exc}") from exc
    except Exception as exc:
        # The library's messages quote entries as dicts, with their secrets.
        message = str(exc).partition("{")[0]
        raise AccessError(f"{source}: {type(exc).__name__}: {message}") from None
