"""The parameters of sources and of discovery."""

from __future__ import annotations

import pytest

from pointsman.kernel.document import read_document
from pointsman.kernel.errors import ConfigError
from pointsman.kernel.structure import structure
from pointsman.plugins.sources import (
    FileDiscovery,
    FileDiscoveryParameters,
    MetricsSource,
    MetricsSourceParameters,
)


def source(yaml: str) -> MetricsSourceParameters:
    document = read_document(yaml, "test")
    parameters = structure(document, document.data, MetricsSourceParameters)
    document.refuse_if_mistaken()
    assert parameters is not None
    return MetricsSource(parameters).source()


def test_a_source_is_by_default_the_reference_s() -> None:
    parameters = source("{}")
    assert (parameters.scheme, parameters.path, parameters.port) == ("http", "/metrics", None)
    assert parameters.insecure_skip_verify
    assert parameters.interval is None


def test_a_source_is_what_the_configuration_says() -> None:
    parameters = source("{scheme: https, port: 9100, interval: 1s, insecureSkipVerify: false}")
    assert (parameters.scheme, parameters.port, parameters.interval) == ("https", 9100, 1.0)
    assert not parameters.insecure_skip_verify


@pytest.mark.parametrize("interval", ["0s", "1ms", "-5s", "49ms", '"abc"', "5"])
def test_c_06_an_interval_that_would_busy_the_server_is_refused(interval: str) -> None:
    with pytest.raises(ConfigError, match="interval: "):
        source(f"interval: {interval}")


@pytest.mark.parametrize(
    ("yaml", "complaint"),
    [
        ("scheme: ftp", "scheme: must be one of http, https"),
        ("path: ''", "path: must not be empty"),
        ("port: 0", "port: must be from 1 to 65535"),
        ("port: 65536", "port: must be from 1 to 65535"),
        ("clientCertPath: x", "clientCertPath and clientKeyPath go together"),
        ("clientKeyPath: x", "clientCertPath and clientKeyPath go together"),
        ("intervall: 1s", "intervall: unknown field .did you mean 'interval'"),
    ],
)
def test_c_01_mistakes_are_named(yaml: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        source(yaml)


def test_file_discovery_hands_on_where_the_file_is() -> None:
    parameters = FileDiscoveryParameters(path="endpoints.yaml")
    assert FileDiscovery(parameters).discovery() is parameters
    assert not parameters.watch_file
