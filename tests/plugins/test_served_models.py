"""Which models endpoints list."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar, Final

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.actors.metrics_rig import URL, A, Web, running
from tests.kernel.zoo import refused
from trio.testing import MockClock

from pointsman.kernel.keys import Consumes, DataView, keys
from pointsman.kernel.model import Endpoint
from pointsman.kernel.testing import wired
from pointsman.plugins import BUILT_IN
from pointsman.plugins.keys import SERVED_MODELS, ServedModel
from pointsman.plugins.served_models import ModelsExtractor, ModelsSource

SOURCE: Final = (
    "dataLayer: {sources: [{pluginRef: models-data-source,"
    " extractors: [{pluginRef: models-data-extractor}]}]}\n"
)
PLUGINS: Final = "plugins: [{type: models-data-source}, {type: models-data-extractor}, {type: %s}]"
LISTED: Final = b"""{"object":"list","data":[
    {"id":"llama","object":"model","created":1787745300,"owned_by":"vllm","root":"/models/llama",
     "parent":null,"max_model_len":8192,"permission":[{"id":"modelperm-1","group":null}]},
    {"id":"sql","object":"model","root":"/models/sql","parent":"llama"}]}"""


def extracted(text: bytes) -> Sequence[ServedModel] | None:
    found = ModelsExtractor().extractor({}, keys(SERVED_MODELS))(text)
    models: Sequence[ServedModel] | None = found[SERVED_MODELS]
    return models


def test_models_and_adapters_are_read_in_their_order() -> None:
    assert extracted(LISTED) == (ServedModel("llama"), ServedModel("sql", parent="llama"))


def test_an_endpoint_may_list_no_model() -> None:
    assert extracted(b'{"object": "list", "data": []}') == ()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>404</html>",
        b"null",
        b"[]",
        b"{}",
        b'{"data": null}',
        b'{"data": [{"object": "model"}]}',
        b'{"data": [{"id": 7}]}',
        b'{"data": ["llama"]}',
        b'{"data": [{"id": "\xff"}]}',
        b'{"data": [{"id": "llama"}',
        b'{"data": ' + b"[" * 100_000,
    ],
)
def test_a_text_that_is_no_list_of_models_says_nothing(text: bytes) -> None:
    assert extracted(text) is None


@given(st.binary() | st.recursive(st.none() | st.text(), st.lists).map(json.dumps).map(str.encode))
def test_no_text_makes_it_fail(text: bytes) -> None:
    assert extracted(text) is None or extracted(text) == ()


@given(st.lists(st.tuples(st.text(), st.none() | st.text())))
def test_every_name_is_read_as_it_is(models: list[tuple[str, str | None]]) -> None:
    data = [{"id": name, "parent": parent} for name, parent in models]
    expected = tuple(ServedModel(name, parent or "") for name, parent in models)
    assert extracted(json.dumps({"data": data}).encode()) == expected


def test_what_nobody_wants_is_not_read() -> None:
    assert ModelsExtractor().extractor({}, keys())(LISTED) == {}


def test_models_are_asked_for_where_the_reference_does_and_seldom() -> None:
    wiring = wired(PLUGINS % "random-picker" + "\n" + SOURCE, *BUILT_IN)
    source = wiring.installed["models-data-source"].plugin.source()
    assert (source.scheme, source.path, source.port) == ("http", "/v1/models", None)
    assert (source.interval, source.insecure_skip_verify) == (10.0, True)


class ServingScorer:
    """Prefers endpoints that list the model ``sql``."""

    type_name: ClassVar = "serving-scorer"
    consumes: ClassVar = Consumes(SERVED_MODELS)

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        wanted = ServedModel("sql", "llama")
        return [1.0 if models and wanted in models else 0.0 for models in data[SERVED_MODELS]]


MODELS_URL: Final = URL.replace("/metrics", "/v1/models")


async def test_an_endpoint_s_models_are_known_to_who_wants_them(autojump_clock: MockClock) -> None:
    config = PLUGINS % ServingScorer.type_name + "\n" + SOURCE
    web = Web({MODELS_URL: LISTED})
    async with running(A, config=config, types=[ServingScorer], web=web) as rig:
        await anyio.sleep(35)
        served = [
            r.values[SERVED_MODELS.name] for r in rig.reports if SERVED_MODELS.name in r.values
        ]
        assert served == [(ServedModel("llama"), ServedModel("sql", "llama"))]
        assert web.times(MODELS_URL) == pytest.approx([0.0, 10.0, 20.0, 30.0])


async def test_endpoints_are_not_asked_for_models_that_nobody_wants(
    autojump_clock: MockClock,
) -> None:
    web = Web({MODELS_URL: LISTED})
    async with running(A, config=PLUGINS % "queue-scorer" + "\n" + SOURCE, web=web):
        await anyio.sleep(35)
        assert web.times(MODELS_URL) == []
        assert web.times(URL)


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ("{path: ''}", "path: must not be empty"),
        ("{scheme: ftp}", "scheme: must be one of http, https"),
        ("{interval: 1ms}", "interval: must be at least 0.05"),
        ("{clientCertPath: x}", "clientCertPath and clientKeyPath go together"),
        ("{intervall: 1s}", "did you mean 'interval'"),
    ],
)
def test_mistaken_parameters_are_refused(parameters: str, complaint: str) -> None:
    text = f"plugins: [{{type: models-data-source, parameters: {parameters}}}]"
    (mistake,) = refused(text, ModelsSource)
    assert complaint in mistake
