"""Configuration and credentials as ``kubernetes`` reads them, with its faults made good."""

from __future__ import annotations

import json
import logging
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from pointsman.actors.kube.config import InCluster, Kubeconfig, login
from pointsman.actors.kube.errors import AccessError
from pointsman.actors.sim.kube.certificates import Authority, KeyPair
from pointsman.actors.sim.kube.identity import ADMIN
from pointsman.actors.sim.kube.kubeconfig import Access as SimAccess

VERSION: Final = "client.authentication.k8s.io/v1"
URL: Final = "https://127.0.0.1:6443"
BEARER: Final = {"authorization": "Bearer t"}

pytest.importorskip("kubernetes")


@cache
def authority() -> Authority:
    return Authority.new()


@cache
def client_pair() -> KeyPair:
    return authority().client(ADMIN)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory for temporary files, in which nothing may be left."""
    path = tmp_path / "scratch"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    yield path
    assert list(path.iterdir()) == []


Write = Callable[..., Kubeconfig]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a kubeconfig with one cluster and one user."""

    def write(user: dict[str, Any] | None = None, url: str = URL, **cluster: Any) -> Kubeconfig:
        content = SimAccess(url=url, authority=authority().pem).kubeconfig()
        content["clusters"][0]["cluster"] |= cluster
        content["users"][0]["user"] = user
        path = tmp_path / "kubeconfig"
        path.write_bytes(msgspec.yaml.encode(content))
        return Kubeconfig(str(path))

    return write


def with_pair(pair: KeyPair) -> dict[str, Any]:
    content = SimAccess(url=URL, client=pair).kubeconfig()
    user: dict[str, Any] = content["users"][0]["user"]
    return user


async def test_a_token_becomes_a_header(write: Write) -> None:
    access = await write({"token": "t"}).read()
    assert (access.host, access.headers) == (URL, BEARER)


async def test_the_clusters_authority_is_trusted_and_no_other(write: Write) -> None:
    access = await write({"token": "t"}).read()
    assert access.ssl_context is not None
    (trusted,) = access.ssl_context.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "pointsman-sim"),),)


async def test_a_comment_in_any_letters_may_be_among_the_authorities(
    write: Write, tmp_path: Path
) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes("# Főtanúsítvány\n".encode() + authority().pem)
    source = write({"token": "t"})
    content = msgspec.yaml.decode(Path(source.path).read_bytes(), type=dict[str, Any])
    content["clusters"][0]["cluster"] = {"server": URL, "certificate-authority": str(bundle)}
    Path(source.path).write_bytes(msgspec.yaml.encode(content))
    access = await source.read()
    assert access.ssl_context is not None
    assert len(access.ssl_context.get_ca_certs()) == 1


async def test_a_token_file_is_read_again(write: Write, tmp_path: Path) -> None:
    source = write({"tokenFile": "token"})  # relative to the kubeconfig
    seen: list[str] = []
    for token in ("one\n", "two\n"):
        (tmp_path / "token").write_text(token)
        seen.append((await source.read()).headers["authorization"])
    assert seen == ["Bearer one", "Bearer two"]


async def test_files_are_due_again_after_a_minute(write: Write) -> None:
    assert (await write({"token": "t"}).read()).good_for == 60


async def test_a_client_certificate_is_loaded_and_leaves_no_file(write: Write) -> None:
    access = await write(with_pair(client_pair())).read()
    assert access.material is not None
    assert access.material.key.encode() == client_pair().key
    assert access.headers == {}


async def test_the_same_certificate_twice_is_the_same_context(write: Write) -> None:
    source = write(with_pair(client_pair()))
    one, two = await source.read(), await source.read()
    assert one.ssl_context is two.ssl_context
    assert one.shares_connections_with(two)


async def test_a_password_becomes_a_header(write: Write) -> None:
    access = await write({"username": "u", "password": "p"}).read()
    assert access.headers == {"authorization": "Basic dTpw"}


async def test_a_context_may_be_named(write: Write) -> None:
    source = write({"token": "t"})
    content = msgspec.yaml.decode(Path(source.path).read_bytes(), type=dict[str, Any])
    content["users"].append({"name": "other", "user": {"token": "o"}})
    named = {"cluster": "pointsman-sim", "user": "other"}
    content["contexts"].append({"name": "c", "context": named})
    Path(source.path).write_bytes(msgspec.yaml.encode(content))
    assert (await Kubeconfig(source.path, "c").read()).headers == {"authorization": "Bearer o"}


async def test_several_files_are_one_configuration(write: Write, tmp_path: Path) -> None:
    source = write({"token": "t"})
    second = tmp_path / "second"
    second.write_text("users:\n- {name: other, user: {token: o}}\n")
    merged = f"{source.path}:{second}:{tmp_path / 'absent'}"
    assert (await Kubeconfig(merged).read()).headers == BEARER


async def test_the_other_name_and_the_proxy_of_a_cluster_are_kept(write: Write) -> None:
    access = await write({"token": "t"}, **{"tls-server-name": "api.test"}).read()
    assert access.server_name == "api.test"
    access = await write({"token": "t"}, **{"proxy-url": "http://127.0.0.1:3128"}).read()
    assert access.proxy == "http://127.0.0.1:3128"


async def test_the_environments_proxy_is_not_for_us(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:3128")
    assert (await write({"token": "t"}).read()).proxy is None


async def test_verification_is_on_unless_the_cluster_turns_it_off(write: Write) -> None:
    access = await write({"token": "t"}, **{"insecure-skip-tls-verify": True}).read()
    assert access.ssl_context is not None
    assert access.ssl_context.verify_mode is ssl.CERT_NONE
    access = await write({"token": "t"}).read()
    assert access.ssl_context is not None
    assert access.ssl_context.verify_mode is ssl.CERT_REQUIRED


async def test_a_cluster_without_tls_needs_no_context(write: Write) -> None:
    access = await write({"token": "t"}, url="http://127.0.0.1:8001/").read()
    assert (access.host, access.ssl_context) == ("http://127.0.0.1:8001", None)


async def test_a_context_without_a_user_is_anonymous_on_purpose(write: Write) -> None:
    source = write({"token": "t"})
    content = msgspec.yaml.decode(Path(source.path).read_bytes(), type=dict[str, Any])
    del content["contexts"][0]["context"]["user"]
    Path(source.path).write_bytes(msgspec.yaml.encode(content))
    assert (await source.read()).headers == {}


def exec_user(tmp_path: Path, *lines: str) -> dict[str, Any]:
    path = tmp_path / "plugin"
    path.write_text("\n".join([f"#!{sys.executable}", "import sys", *lines]))
    path.chmod(0o755)
    return {"exec": {"command": "./plugin", "apiVersion": VERSION}}


def credential(**status: str) -> str:
    return json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})


async def test_a_programs_token_becomes_a_header(write: Write, tmp_path: Path) -> None:
    access = await write(exec_user(tmp_path, f"print({credential(token='t')!r})")).read()
    assert (access.headers, access.good_for) == (BEARER, float("inf"))


async def test_a_programs_certificate_is_loaded_and_leaves_no_file(
    write: Write, tmp_path: Path
) -> None:
    pair = client_pair()
    text = credential(
        clientCertificateData=pair.certificate.decode(), clientKeyData=pair.key.decode()
    )
    access = await write(exec_user(tmp_path, f"print({text!r})")).read()
    assert access.material is not None
    assert access.material.certificate.encode() == pair.certificate


async def test_a_program_that_fails_is_an_error_and_no_anonymous_access(
    write: Write, tmp_path: Path
) -> None:
    with pytest.raises(AccessError, match=r"exec plugin '\./plugin': exit status 1: expired"):
        await write(exec_user(tmp_path, "sys.exit('expired')")).read()


@pytest.mark.parametrize(
    ("user", "cluster", "reason"),
    [
        ({"auth-provider": {"name": "oidc", "config": {"id-token": "x"}}}, {}, "no usable"),
        ({"auth-provider": {"name": "gcp", "config": {}}}, {}, "kubeconfig"),
        ({"tokenFile": "absent"}, {}, "absent"),
        ({"token": "a\x07b"}, {}, "characters that no header may have"),
        ({"token": "t", "as": "somebody"}, {}, "impersonation"),
        ({"client-certificate-data": "%%%"}, {}, "kubeconfig"),
        ({"token": "t"}, {"server": ""}, "no http or https URL"),
        ({"token": "t"}, {"proxy-url": "http://p", "tls-server-name": "n"}, "proxy-url"),
        ({"token": "t"}, {"certificate-authority-data": "Tk8="}, "kubeconfig"),
    ],
)
async def test_what_cannot_be_used_is_an_error(
    write: Write, user: dict[str, Any], cluster: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AccessError, match=reason):
        await write(user, **cluster).read()


async def test_no_secret_is_in_an_error(write: Write) -> None:
    source = write({"token": "t"})
    text = Path(source.path).read_text()
    Path(source.path).write_text(text.replace("user:\n    token: t", "usr:\n    token: s3cret"))
    with pytest.raises(AccessError) as caught:
        await source.read()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[", "- a", "users: 7", "clusters: [{}]"])
async def test_a_file_that_is_no_kubeconfig_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(AccessError, match="kubeconfig"):
        await Kubeconfig(str(tmp_path / "kubeconfig")).read()


async def test_a_missing_kubeconfig_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="there is no such file"):
        await Kubeconfig(str(tmp_path / "absent")).read()


async def test_a_missing_package_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.config.kube_config", None)
    with pytest.raises(AccessError, match="needs the package"):
        await Kubeconfig("x").read()


@pytest.fixture
def account(tmp_path: Path) -> InCluster:
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "ca.crt").write_bytes(authority().pem)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    return InCluster(environ, str(tmp_path))


async def test_a_pod_uses_its_service_account(account: InCluster) -> None:
    access = await account.read()
    assert access.host == "https://[fd00::1]:443"
    assert access.headers == {"authorization": "bearer t"}
    assert access.ssl_context is not None


async def test_a_rotated_service_account_token_is_read(account: InCluster, tmp_path: Path) -> None:
    await account.read()
    (tmp_path / "token").write_text("new")
    assert (await account.read()).headers == {"authorization": "bearer new"}


async def test_a_service_account_without_a_token_is_an_error(
    account: InCluster, tmp_path: Path
) -> None:
    (tmp_path / "token").unlink()
    with pytest.raises(AccessError, match="the service account"):
        await account.read()


IN_POD: Final = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.mark.parametrize(
    ("given", "environ", "source"),
    [
        ({"kubeconfig": "k"}, IN_POD | {"KUBECONFIG": "e"}, Kubeconfig("k")),
        ({}, IN_POD | {"KUBECONFIG": "e"}, Kubeconfig("e")),
        ({}, IN_POD, InCluster(IN_POD)),
        ({"context": "c"}, IN_POD, Kubeconfig("~/.kube/config", "c")),
        ({}, {}, Kubeconfig("~/.kube/config")),
    ],
)
def test_the_first_source_that_is_there_is_used(
    given: dict[str, str], environ: dict[str, str], source: object
) -> None:
    read: Any = login(environ=environ, **given).read
    assert read.__self__ == source


async def test_nothing_is_logged_or_printed(
    write: Write,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(AccessError):
        await write(exec_user(tmp_path, "sys.exit('expired')")).read()
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


async def test_the_users_file_is_never_rewritten(write: Write) -> None:
    source = write({"token": "t"})
    before = os.stat(source.path)
    await source.read()
    after = os.stat(source.path)
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
