"""What the daemon counts. M-12 and Z-01 are field reports whose fault a test keeps away."""

from __future__ import annotations

from random import Random

import pytest
from attrs import evolve
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from pointsman import plugins
from pointsman.actors.figures import Figures
from pointsman.kernel.director import Outcome
from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import EndCause, Endpoint, Request
from pointsman.kernel.names import LONGEST_NAME, Names
from pointsman.kernel.plugin import Role
from pointsman.kernel.testing import decide, endpoints, make_request, pool, wired

ATTEMPTS = "llm_d_epp_scheduler_attempts_total"
ERRORS = "llm_d_epp_request_error_total"
WIRING = wired("plugins: [{type: random-picker}]", *plugins.BUILT_IN)


@pytest.fixture
def figures() -> Figures:
    return Figures()


def decided(endpoint: Endpoint, model: str = "m") -> tuple[Request, Outcome]:
    request = make_request(model=model)
    return request, decide(WIRING, pool([endpoint]), request)


def pick(figures: Figures, endpoint: Endpoint, model: str = "m") -> None:
    figures.picked(*decided(endpoint, model), 0.0003)


def value(figures: Figures, name: str, /, **labels: str) -> float | None:
    return figures.registry.get_sample_value(name, labels)


def series(figures: Figures, name: str) -> list[dict[str, str]]:
    families = text_string_to_metric_families(generate_latest(figures.registry).decode())
    return [s.labels for family in families for s in family.samples if s.name == name]


def attempts(figures: Figures, endpoint: Endpoint, model: str = "m") -> float | None:
    return value(
        figures,
        ATTEMPTS,
        status="success",
        target_model_name=model,
        endpoint_name=endpoint.name,
        namespace=endpoint.namespace,
        port=str(endpoint.port),
    )


def test_a_pick_is_counted_and_timed(figures: Figures) -> None:
    (a,) = endpoints("a")
    pick(figures, a)
    pick(figures, a)
    assert attempts(figures, a) == 2
    seconds = "llm_d_epp_scheduler_e2e_duration_seconds"
    assert value(figures, f"{seconds}_count") == 2
    assert value(figures, f"{seconds}_sum") == pytest.approx(0.0006)
    assert value(figures, f"{seconds}_bucket", le="0.0002") == 0
    assert value(figures, f"{seconds}_bucket", le="0.0005") == 2


@pytest.mark.parametrize(
    ("status", "code"), [(400, "BadRequest"), (503, "ServiceUnavailable"), (418, "Unknown")]
)
def test_a_refusal_is_counted_by_model_and_code(figures: Figures, status: int, code: str) -> None:
    request = make_request(model="m", priority=3)
    request.incoming_model = "alias"
    figures.refused(request, Refusal(status, "no"))
    labels = {"model_name": "alias", "target_model_name": "m", "fairness_id": ""}
    assert value(figures, ERRORS, **labels, priority="3", error_code=code) == 1


@pytest.mark.parametrize(("status", "count"), [(429, 1), (503, 1), (400, None), (500, None)])
def test_only_refusals_for_want_of_an_endpoint_are_failed_attempts(
    figures: Figures, status: int, count: int | None
) -> None:
    figures.refused(make_request(model="m"), Refusal(status, "no"))
    labels = {"endpoint_name": "", "namespace": "", "port": ""}
    assert value(figures, ATTEMPTS, status="failure", target_model_name="m", **labels) == count


def test_a_refusal_before_there_is_a_request_is_counted(figures: Figures) -> None:
    figures.refused(None, Refusal(400, "no"))
    assert [labels["error_code"] for labels in series(figures, ERRORS)] == ["BadRequest"]


def test_ends_failures_and_violations_are_counted(figures: Figures) -> None:
    figures.conversation_ended(EndCause.CLIENT_DISCONNECT)
    figures.plugin_failed(WIRING.installed["random-picker"], Role.PICKER)
    figures.scope_violated("mine", "kv-cache-usage", "read")
    assert series(figures, "pointsman_conversations_total") == [{"cause": "client-disconnect"}]
    assert series(figures, "pointsman_plugin_failures_total") == [
        {
            "extension_point": "Picker",
            "plugin_type": "random-picker",
            "plugin_name": "random-picker",
        }
    ]
    assert series(figures, "llm_d_epp_plugin_data_scope_violations_total") == [
        {"plugin_name": "mine", "key": "kv-cache-usage", "access": "read"}
    ]


def test_m_12_an_endpoint_that_is_gone_leaves_no_series(figures: Figures) -> None:
    a, b = endpoints("a", "b")
    for model in ("m", "n"):
        pick(figures, a, model)
        pick(figures, b, model)
    figures.forget(a)
    assert {labels["endpoint_name"] for labels in series(figures, ATTEMPTS)} == {"b"}
    assert attempts(figures, b) == 1


def test_m_12_an_endpoint_whose_port_changed_leaves_no_series_either(figures: Figures) -> None:
    (before,) = endpoints("a")
    after = evolve(before, port=9000)
    pick(figures, before)
    pick(figures, after)
    assert attempts(figures, after) == 1
    figures.forget(after)
    assert series(figures, ATTEMPTS) == []


def test_an_endpoint_that_is_back_is_counted_from_zero(figures: Figures) -> None:
    (a,) = endpoints("a")
    pick(figures, a)
    figures.forget(a)
    pick(figures, a)
    assert attempts(figures, a) == 1


def test_m_12_a_gauge_of_a_function_is_zero_when_there_is_nothing(figures: Figures) -> None:
    members = ["a", "b"]
    figures.ready_endpoints.labels("").set_function(lambda: len(members))
    figures.watch("pointsman_things", "Things.", lambda: len(members))
    members.clear()
    assert value(figures, "llm_d_epp_ready_endpoints", name="") == 0
    assert value(figures, "pointsman_things") == 0


def test_families_can_be_made_when_they_are_looked_at(figures: Figures) -> None:
    names = ["a"]

    def families() -> list[GaugeMetricFamily]:
        family = GaugeMetricFamily("pointsman_lengths", "Lengths.", labels=["name"])
        for name in names:
            family.add_metric([name], len(name))
        return [family]

    figures.collect(families)
    assert series(figures, "pointsman_lengths") == [{"name": "a"}]
    names.append("bb")
    assert value(figures, "pointsman_lengths", name="bb") == 2


def test_the_process_describes_itself(figures: Figures) -> None:
    text = generate_latest(figures.registry).decode()
    assert "process_cpu_seconds_total" in text
    assert "python_gc_collections_total" in text
    assert "_created" not in text


def test_a_registry_may_be_shared() -> None:
    registry = CollectorRegistry()
    assert Figures(registry).registry is registry


# -- labels that clients choose -------------------------------------------------------------------


def test_z_01_a_flood_of_model_names_ends_as_other(figures: Figures) -> None:
    (a,) = endpoints("a")
    pick(figures, a, "known")
    random = Random(0)
    for _ in range(1500):
        figures.refused(make_request(model=f"m{random.random()}"), Refusal(503, "no"))
    pick(figures, a, "known")
    labels = [one["target_model_name"] for one in series(figures, ERRORS)]
    assert len(labels) <= 1000
    assert "other" in labels
    assert attempts(figures, a, "known") == 2


def test_z_01_a_model_name_of_a_megabyte_is_other() -> None:
    names = Names()
    assert names.label("x" * LONGEST_NAME) == "x" * LONGEST_NAME
    assert names.label("x" * 1_000_000) == "other"


def test_z_01_a_model_that_is_called_other_does_no_harm() -> None:
    names = Names(most=1)
    assert [names.label(name) for name in ("other", "a", "other", "")] == [
        "other",
        "other",
        "other",
        "",
    ]
