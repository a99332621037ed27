"""What a server accepts, in Go's words."""

from __future__ import annotations

import ssl
import warnings
from pathlib import Path

import pytest

from pointsman.actors import tls
from pointsman.actors.tls_policy import (
    ALWAYS_ON,
    SUITES,
    VERSIONS,
    Policy,
    read_suites,
    read_version,
)

from .handshakes import client, handshake, issue, put

ECDHE = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"


def speaking(version: ssl.TLSVersion, suites: str = "") -> ssl.SSLContext:
    """A client that speaks one version."""
    context = client("h2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    if suites:
        context.set_ciphers(suites)
    return context


@pytest.mark.parametrize("oldest", VERSIONS)
@pytest.mark.parametrize("spoken", VERSIONS)
def test_the_oldest_version_to_speak_is_the_one_that_was_named(oldest: str, spoken: str) -> None:
    server = tls.self_signed(Policy(minimum=VERSIONS[oldest]))
    peer = speaking(VERSIONS[spoken], "DEFAULT:@SECLEVEL=0")
    if spoken >= oldest:
        handshake(server, peer)
    else:
        with pytest.raises(ssl.SSLError):
            handshake(server, peer)


def test_without_a_word_it_is_tls_1_2() -> None:
    server = tls.self_signed()
    handshake(server, speaking(ssl.TLSVersion.TLSv1_2))
    with pytest.raises(ssl.SSLError):
        handshake(server, speaking(ssl.TLSVersion.TLSv1_1, "DEFAULT:@SECLEVEL=0"))


def test_only_the_suites_that_were_named_are_spoken() -> None:
    server = tls.self_signed(Policy(suites=(ECDHE,)))
    chosen = handshake(server, speaking(ssl.TLSVersion.TLSv1_2)).cipher()
    assert chosen is not None
    assert chosen[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    other = speaking(ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises(ssl.SSLError):
        handshake(server, other)


def test_tls_1_3_has_its_own_suites_whatever_was_named() -> None:
    server = tls.self_signed(Policy(suites=(ECDHE,)))
    assert handshake(server, client("h2")).version() == "TLSv1.3"


def test_suites_of_tls_1_3_alone_leave_nothing_older() -> None:
    server = tls.self_signed(Policy(suites=tuple(ALWAYS_ON)))
    handshake(server, client("h2"))
    with pytest.raises(ssl.SSLError):
        handshake(server, speaking(ssl.TLSVersion.TLSv1_2))


def test_a_policy_holds_for_files_as_well(tmp_path: Path) -> None:
    put(tmp_path, issue())
    policy = Policy(minimum=ssl.TLSVersion.TLSv1_3)
    server = tls.Certificates.load(tmp_path, policy).context
    with pytest.raises(ssl.SSLError):
        handshake(server, speaking(ssl.TLSVersion.TLSv1_2))


def test_every_suite_has_a_name_that_openssl_knows_or_has_dropped() -> None:
    """The names of what this build lacks cannot be told from misspelt ones: they are few."""
    unknown = set[str]()
    for name in SUITES:
        try:
            read_suites(name)
        except ValueError:
            unknown.add(name)
    assert unknown <= {name for name in SUITES if "RC4" in name or "3DES" in name}


def test_suites_come_separated_by_commas_each_once() -> None:
    assert read_suites(f" {ECDHE}, {ECDHE} ,TLS_AES_128_GCM_SHA256,") == (
        ECDHE,
        "TLS_AES_128_GCM_SHA256",
    )


def test_an_unknown_suite_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384'"):
        read_suites("TLS_ECDHE_ECDSA_AES_256_GCM_SHA384")


def test_an_unknown_version_is_answered_with_all_of_them() -> None:
    with pytest.raises(ValueError, match=r"'TLS1\.2' is none of VersionTLS10, .*VersionTLS13"):
        read_version("TLS1.2")
