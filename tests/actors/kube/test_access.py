"""Credentials that are read again when due and when refused, and the TLS contexts made of them."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from pointsman.actors.kube.access import Access, Login, TlsMaterial, tls_context
from pointsman.actors.kube.errors import AccessError


@define(eq=False)
class Readings:
    """What a configuration says, reading after reading; the last one stays."""

    results: Sequence[Access | AccessError]
    count: int = field(default=0, init=False)

    async def read(self) -> Access:
        result = self.results[min(self.count, len(self.results) - 1)]
        self.count += 1
        await trio.lowlevel.checkpoint()
        if isinstance(result, AccessError):
            raise result
        return result


def named(token: str, good_for: float = 60.0) -> Access:
    return Access("https://api", {"authorization": token}, good_for=good_for)


async def token(login: Login) -> str:
    return (await login.access()).headers["authorization"]


async def test_credentials_are_kept_while_they_are_good(autojump_clock: MockClock) -> None:
    readings = Readings([named("one"), named("two")])
    login = Login(readings.read)
    assert await token(login) == "one"
    await trio.sleep(59)
    assert await token(login) == "one"
    await trio.sleep(2)
    assert await token(login) == "two"


async def test_many_who_wait_cause_one_reading(nursery: trio.Nursery) -> None:
    readings = Readings([named("one")])
    login = Login(readings.read)
    async with trio.open_nursery() as waiting:
        for _ in range(10):
            waiting.start_soon(login.access)
    assert readings.count == 1


async def test_refused_credentials_are_not_handed_out_again() -> None:
    login = Login(Readings([named("one"), named("two")]).read)
    await login.refused(await login.access())
    assert await token(login) == "two"


async def test_a_late_refusal_of_earlier_credentials_changes_nothing() -> None:
    readings = Readings([named("one"), named("two"), named("three")])
    login = Login(readings.read)
    first = await login.access()
    await login.refused(first)
    await login.access()
    await login.refused(first)
    assert await token(login) == "two"


async def test_a_reading_that_fails_leaves_the_last_credentials(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    readings = Readings([named("one"), AccessError("gone"), AccessError("gone"), named("two")])
    login = Login(readings.read)
    await login.access()
    await trio.sleep(61)
    with caplog.at_level(logging.WARNING):
        assert await token(login) == "one"
        await trio.sleep(11)
        assert await token(login) == "one"
    assert [record.message for record in caplog.records] == [
        "the credentials stay as they were: gone"
    ]
    await trio.sleep(11)
    assert await token(login) == "two"


async def test_without_any_credentials_the_failure_is_the_callers() -> None:
    login = Login(Readings([AccessError("gone"), named("one")]).read)
    with pytest.raises(AccessError, match="gone"):
        await login.access()
    assert await token(login) == "one"


async def test_refused_credentials_do_not_come_back_when_reading_fails() -> None:
    login = Login(Readings([named("one"), AccessError("gone")]).read)
    await login.refused(await login.access())
    with pytest.raises(AccessError, match="gone"):
        await login.access()


def test_the_strict_flag_of_newer_pythons_is_cleared() -> None:
    assert not tls_context(TlsMaterial()).verify_flags & ssl.VERIFY_X509_STRICT


def test_certificates_are_verified_unless_told_otherwise() -> None:
    strict, lenient = tls_context(TlsMaterial()), tls_context(TlsMaterial(verify=False))
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (lenient.verify_mode, lenient.check_hostname) == (ssl.CERT_NONE, False)


def test_connections_are_shared_by_accesses_that_differ_in_the_token_only() -> None:
    assert named("one").shares_connections_with(named("two", 5))
    other = Access("https://api", material=TlsMaterial(certificate="c", key="k"))
    assert not other.shares_connections_with(named("one"))
