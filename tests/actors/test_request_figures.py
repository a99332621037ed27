"""The labels of requests, which clients choose. Z-01 is a field report."""

from __future__ import annotations

from random import Random

import pytest

from pointsman.actors import request_figures
from pointsman.actors.request_figures import RequestFigures
from pointsman.kernel.model import Headers, Request
from pointsman.kernel.names import Names
from pointsman.kernel.testing import make_request


def request(model: str = "m", flow: str | None = None, priority: int = 0) -> Request:
    headers = {} if flow is None else {"x-llm-d-inference-fairness-id": flow}
    return make_request(model=model, headers=headers, priority=priority)


def test_requests_alike_are_counted_in_one_place() -> None:
    figures = RequestFigures()
    assert figures.series(request()) is figures.series(request())
    assert figures.series(request()) is not figures.series(request(priority=1))


@pytest.mark.parametrize("flow", [None, ""])
def test_requests_of_no_flow_are_of_the_default_one(flow: str | None) -> None:
    series = RequestFigures().series(request(flow=flow))
    assert series.labels == ("m", "m", "default-flow", "0")


def test_the_newer_of_two_names_of_the_flow_counts() -> None:
    names = ("x-gateway-inference-fairness-id", "x-llm-d-inference-fairness-id")
    asked = make_request(model="m", headers=dict(zip(names, ("old", "new"), strict=True)))
    assert RequestFigures().series(asked).labels[2] == "new"


def test_z_01_a_flood_of_models_and_flows_ends_as_other() -> None:
    figures, random = RequestFigures(), Random(0)
    known = figures.series(request("known", "team"))
    for _ in range(20_000):
        figures.series(request(f"m{random.random()}", f"f{random.random()}"))
    assert len([*figures]) <= 2 * request_figures.MOST_SERIES + 1
    assert figures.series(request("new", "new")).labels == ("other", "other", "other", "0")
    assert figures.series(request("known", "team")) is known


def test_z_01_flows_give_way_before_models_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_figures, "MOST_SERIES", 2)
    figures = RequestFigures()
    found = [figures.series(request(f"m{n}", f"f{n}")).labels[:3] for n in range(5)]
    assert found == [
        ("m0", "m0", "f0"),
        ("m1", "m1", "f1"),
        ("m2", "m2", "other"),
        ("m3", "m3", "other"),
        ("other", "other", "other"),
    ]


def test_z_01_a_client_called_other_is_counted_with_the_others() -> None:
    figures = RequestFigures(models=Names(most=1))
    figures.series(request("first"))
    assert figures.series(request("second")) is figures.series(request("other"))


def test_z_01_models_that_an_operator_named_are_never_other() -> None:
    pinned = ["mine"]
    figures = RequestFigures(lambda: pinned, models=Names(most=1))
    figures.series(request("first"))
    assert figures.series(request("second")).labels[0] == "other"
    assert figures.series(request("mine")).labels[0] == "mine"
    assert figures.series(request("later")).labels[0] == "other"
    pinned.append("later")
    assert figures.series(request("later")).labels[0] == "later"


def test_bytes_that_are_no_text_are_other() -> None:
    asked = Request(Headers({"x-llm-d-inference-fairness-id": b"\xff"}))
    assert RequestFigures().series(asked).labels[2] == "other"
