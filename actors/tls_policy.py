"""What a TLS server accepts, in the words of the reference system (which are Go's)."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final, final

from attrs import frozen

from pointsman.kernel.registry import did_you_mean

VERSIONS: Final[Mapping[str, ssl.TLSVersion]] = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
ALWAYS_ON: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
"""The suites of TLS 1.3, among which neither Go nor we let anybody choose."""
_OUTDATED: Final = frozenset({ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1})


def _suites() -> dict[str, str]:
    """Go's names, and OpenSSL's names for the same."""
    strong = {
        "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
        "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
        "AES_128_CBC_SHA256": "AES128-SHA256",
        "AES_128_CBC_SHA": "AES128-SHA",
        "AES_256_CBC_SHA": "AES256-SHA",
    }
    chacha = {
        "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
        "CHACHA20_POLY1305": "CHACHA20-POLY1305",
    }
    weak = {"3DES_EDE_CBC_SHA": "DES-CBC3-SHA", "RC4_128_SHA": "RC4-SHA"}
    names = {f"TLS_RSA_WITH_{go}": other for go, other in (strong | weak).items()}
    for key, (go, other) in product(("RSA", "ECDSA"), (strong | chacha | weak).items()):
        names[f"TLS_ECDHE_{key}_WITH_{go}"] = f"ECDHE-{key}-{other}"
    del names["TLS_ECDHE_ECDSA_WITH_3DES_EDE_CBC_SHA"]  # which Go has not
    return names


SUITES: Final[Mapping[str, str]] = _suites()


def read_version(text: str) -> ssl.TLSVersion:
    """Raises ValueError."""
    if text not in VERSIONS:
        raise ValueError(f"{text!r} is none of {', '.join(VERSIONS)}")
    return VERSIONS[text]


def read_suites(text: str) -> tuple[str, ...]:
    """Go's names of cipher suites, separated by commas. Raises ValueError."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in ALWAYS_ON:
            _check_suite(name)
    return names


def _check_suite(name: str) -> None:
    if name not in SUITES:
        hint = did_you_mean(name, (*SUITES, *ALWAYS_ON))
        raise ValueError(f"unknown cipher suite {name!r}" + (f"; {hint}" if hint else ""))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(SUITES[name])
    except ssl.SSLError:
        raise ValueError(f"this machine's OpenSSL has no cipher suite {name!r}") from None


@final
@frozen(kw_only=True)
class Policy:
    """What a server accepts, whichever certificate it shows."""

    minimum: ssl.TLSVersion | None = None
    """None: TLS 1.2."""
    suites: Sequence[str] = ()
    """By Go's names, for connections up to TLS 1.2; none: as OpenSSL has it."""
    protocols: Sequence[str] = ("h2",)
    """For ALPN, best first."""

    def context(self) -> ssl.SSLContext:
        """A server's context that lacks only the certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(list(self.protocols))
        if self.minimum is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # asked for by name
                context.minimum_version = self.minimum
        self._restrict(context)
        return context

    def _restrict(self, context: ssl.SSLContext) -> None:
        chosen = [SUITES[name] for name in self.suites if name in SUITES]
        if self.minimum in _OUTDATED:
            # OpenSSL 3 speaks TLS 1.0 and 1.1 on its lowest level of security only.
            chosen = [*(chosen or ["DEFAULT"]), "@SECLEVEL=0"]
        if chosen:
            context.set_ciphers(":".join(chosen))
        elif self.suites:  # those of TLS 1.3 alone: nothing older can be spoken
            context.minimum_version = ssl.TLSVersion.TLSv1_3
