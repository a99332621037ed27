"""The daemon's flags for TLS come to what the ext_proc port shows."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest

from pointsman.actors.main import run

from .daemons import CONFIG, Make
from .handshakes import client, handshake, issue, put, serial, shown_serial


def test_the_port_shows_the_certificate_of_the_folder(make: Make, tmp_path: Path) -> None:
    pair = issue()
    put(tmp_path / "certs", pair)
    context = make(f"--cert-path={tmp_path}/certs").server.listening.tls
    assert context is not None
    assert shown_serial(handshake(context, client())) == serial(pair)


@pytest.mark.parametrize("files", [False, True])
def test_version_and_suites_hold_for_either_certificate(
    make: Make, tmp_path: Path, files: bool
) -> None:
    put(tmp_path / "certs", issue())
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    path = [f"--cert-path={tmp_path}/certs"] if files else []
    context = make(f"--tls-cipher-suites={suite}", *path).server.listening.tls
    strict = make("--tls-min-version=VersionTLS13", *path).server.listening.tls
    assert context is not None
    assert strict is not None
    old = client()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    used = handshake(context, old).cipher()
    assert used is not None
    assert used[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    with pytest.raises(ssl.SSLError):
        handshake(strict, old)


def test_flags_without_effect_are_said(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make("--enable-cert-reload")
    make("--secure-serving=false", f"--cert-path={tmp_path}")
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert said == [
        "--enable-cert-reload has no effect without --cert-path",
        "--cert-path has no effect with --secure-serving=false",
    ]


def test_files_that_cannot_be_used_end_the_daemon(
    tmp_path: Path, endpoints_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, issue())
    (tmp_path / "tls.key").write_bytes(issue().key)
    config = CONFIG.replace("PATH", str(endpoints_file))
    assert run(["serve", f"--config-text={config}", f"--cert-path={tmp_path}"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"pointsman: {tmp_path}: tls.key does not belong to tls.crt"


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--tls-min-version=1.2", "is none of VersionTLS10"),
        ("--tls-cipher-suites=TLS_AES_128_GCM_SHA257", "did you mean 'TLS_AES_128_GCM_SHA256'"),
    ],
)
def test_unknown_versions_and_suites_are_refused(
    flag: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["serve", flag])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
