"""What is counted of one conversation, told to an observer step by step on a clock of the test's.

Z-01 is a field report whose fault a test keeps away.
"""

from __future__ import annotations

import pytest
from attrs import define, evolve, field

from pointsman import plugins
from pointsman.actors.conversation import BodyMode, Modes
from pointsman.actors.figures import Figures
from pointsman.actors.observation import Observation
from pointsman.actors.observing import Ending
from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import EndCause, Endpoint, Headers, Request, Usage
from pointsman.kernel.testing import decide, endpoints, make_request, pool, wired

from .figure_texts import measured, series, value

PREFIX = "llm_d_epp_"
ATTEMPTS = f"{PREFIX}scheduler_attempts_total"
ERRORS = f"{PREFIX}request_error_total"
WIRING = wired("plugins: [{type: random-picker}]", *plugins.BUILT_IN)
(A,) = endpoints("a")
L = {"model_name": "m", "target_model_name": "m", "fairness_id": "default-flow", "priority": "0"}
STREAM = {"content-type": b"text/event-stream; charset=utf-8"}
WHOLE = {"content-type": b"application/json"}


@define(eq=False)
class Talk:
    """Figures, and a conversation that they follow."""

    figures: Figures
    request: Request
    clock: list[float]
    observer: Observation = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.observer = self.figures.observe()

    def begin(self, modes: Modes | None = None) -> None:
        self.observer.began(self.request, modes or Modes())

    def pick(self, endpoint: Endpoint = A, seconds: float = 0.0003) -> None:
        outcome = decide(WIRING, pool([endpoint]), self.request)
        self.observer.picked(self.request, outcome, seconds)

    def respond(self, headers: dict[str, bytes], *chunks: bytes, every: float = 0.0) -> None:
        self.observer.response_began(Headers(headers))
        for chunk in chunks:
            self.clock[0] += every
            self.observer.chunk_came(chunk)
            self.observer.chunk_passed()

    def end(
        self,
        cause: EndCause = EndCause.NATURAL,
        *,
        refusal: Refusal | None = None,
        status: int | None = None,
        usage: Usage | None = None,
        whole: bool = True,
    ) -> None:
        self.observer.ended(Ending(cause, refusal, status, usage, whole))

    def value(self, name: str, **labels: str) -> float | None:
        return value(self.figures, PREFIX + name, **{**L, **labels})

    def measured(self, name: str) -> list[tuple[float, float]]:
        return measured(self.figures, PREFIX + name)


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


@pytest.fixture
def figures(clock: list[float]) -> Figures:
    return Figures(clock=lambda: clock[0])


@pytest.fixture
def talk(figures: Figures, clock: list[float]) -> Talk:
    talk = Talk(figures, make_request(model="m", size=2000), clock)
    talk.begin()
    return talk


# -- the request ----------------------------------------------------------------------------------


def test_a_pick_is_counted_sized_and_timed(talk: Talk) -> None:
    talk.clock[0] += 0.25  # its body took its time
    talk.pick()
    assert talk.value("request_total") == 1
    assert talk.measured("request_size_bytes") == [(1, 2000)]
    assert talk.measured("scheduler_e2e_duration_seconds") == [(1, 0.0003)]
    assert talk.measured("request_processing_duration_seconds") == [(1, 0.25)]
    assert series(talk.figures, ATTEMPTS) == [
        {
            "status": "success",
            "target_model_name": "m",
            "endpoint_name": "a",
            "namespace": "default",
            "port": "8000",
        }
    ]


def test_a_request_runs_from_its_decision_to_its_end(talk: Talk) -> None:
    assert talk.value("request_running") is None
    talk.pick()
    assert talk.value("request_running") == 1
    talk.end()
    assert talk.value("request_running") == 0


def test_z_01_a_request_ends_under_the_labels_under_which_it_began(talk: Talk) -> None:
    talk.pick()
    talk.request.model = talk.request.incoming_model = "another"
    talk.end()
    assert talk.value("request_running") == 0
    assert series(talk.figures, f"{PREFIX}request_running") == [L]


def test_model_target_flow_and_priority_are_told_apart(
    figures: Figures, clock: list[float]
) -> None:
    headers = {"x-gateway-inference-fairness-id": "team-a"}
    request = make_request(model="target", priority=-3, headers=headers)
    request.incoming_model = "alias"
    talk = Talk(figures, request, clock)
    talk.begin()
    talk.pick()
    assert series(figures, f"{PREFIX}request_total") == [
        {
            "model_name": "alias",
            "target_model_name": "target",
            "fairness_id": "team-a",
            "priority": "-3",
        }
    ]


@pytest.mark.parametrize(
    ("status", "code"), [(400, "BadRequest"), (503, "ServiceUnavailable"), (418, "Unknown")]
)
def test_a_refusal_is_counted_by_its_code(talk: Talk, status: int, code: str) -> None:
    talk.clock[0] += 0.5
    talk.end(EndCause.ERROR, refusal=Refusal(status, "no"), whole=False)
    assert talk.value("request_error_total", error_code=code) == 1
    assert talk.measured("request_processing_duration_seconds") == [(1, 0.5)]
    assert talk.value("request_total") is None
    assert talk.value("request_running") is None


@pytest.mark.parametrize(("status", "count"), [(429, 1), (503, 1), (400, None), (500, None)])
def test_only_refusals_for_want_of_an_endpoint_are_failed_attempts(
    talk: Talk, status: int, count: int | None
) -> None:
    talk.end(EndCause.ERROR, refusal=Refusal(status, "no"), whole=False)
    labels = {"endpoint_name": "", "namespace": "", "port": ""}
    failed = value(talk.figures, ATTEMPTS, status="failure", target_model_name="m", **labels)
    assert failed == count


def test_a_refusal_before_there_is_a_request_is_counted(
    figures: Figures, clock: list[float]
) -> None:
    talk = Talk(figures, make_request(), clock)
    talk.end(EndCause.ERROR, refusal=Refusal(400, "no"), whole=False)
    assert [labels["error_code"] for labels in series(figures, ERRORS)] == ["BadRequest"]
    assert talk.measured("request_processing_duration_seconds") == []


def test_a_request_refused_after_its_decision_runs_no_more(talk: Talk) -> None:
    talk.pick()
    talk.end(EndCause.ERROR, refusal=Refusal(500, "no"), whole=False)
    assert talk.value("request_running") == 0
    assert talk.value("request_error_total", error_code="Internal") == 1
    assert [labels["status"] for labels in series(talk.figures, ATTEMPTS)] == ["success"]
    assert len(talk.measured("request_processing_duration_seconds")) == 1


# -- the response ---------------------------------------------------------------------------------


def test_without_a_response_in_sight_only_the_duration_is_known(talk: Talk) -> None:
    talk.pick()
    talk.clock[0] += 3
    talk.end()
    assert talk.measured("request_duration_seconds") == [(1, 3)]
    for name in (
        "request_ttft_seconds",
        "response_size_bytes",
        "response_processing_duration_seconds",
        "request_input_tokens",
        "request_ntpot_seconds",
    ):
        assert talk.measured(name) == [], name


@pytest.mark.parametrize("cause", [EndCause.CLIENT_DISCONNECT, EndCause.ERROR, EndCause.EVICTED])
def test_what_ends_before_its_response_has_no_duration(talk: Talk, cause: EndCause) -> None:
    talk.pick()
    talk.respond(STREAM, b"data")
    talk.end(cause, whole=False)
    assert talk.measured("request_duration_seconds") == []
    assert talk.measured("response_size_bytes") == []
    assert talk.measured("request_ttft_seconds") == [(1, 0)]


def test_a_streamed_response_is_measured_chunk_by_chunk(talk: Talk) -> None:
    talk.clock[0] += 1
    talk.pick()
    talk.respond(STREAM, b"one", b"two", b"", b"six", every=0.5)
    assert talk.value("request_ttft_seconds_sum", streaming="true") == 1.5
    assert talk.value("request_ttft_seconds_sum", streaming="false") is None
    talk.end(usage=Usage(prompt_tokens=30, completion_tokens=4))
    assert talk.measured("request_duration_seconds") == [(1, 3)]
    assert talk.measured("response_size_bytes") == [(1, 9)]
    # The empty chunk is nothing that a client could have seen.
    assert talk.measured("request_streaming_itl_seconds") == [(2, 1.0)]
    assert talk.measured("request_streaming_tpot_seconds") == [(1, 0.5)]
    assert talk.measured("request_ntpot_seconds") == [(1, 0.75)]


def test_a_response_in_one_piece_has_no_time_between_tokens(talk: Talk) -> None:
    talk.pick()
    talk.respond(WHOLE, b"{}", b"{}", every=1.0)
    talk.end(usage=Usage(prompt_tokens=30, completion_tokens=4))
    assert talk.value("request_ttft_seconds_sum", streaming="false") == 1
    assert talk.measured("request_streaming_itl_seconds") == []
    assert talk.measured("request_streaming_tpot_seconds") == []
    assert talk.measured("request_ntpot_seconds") == [(1, 0.5)]


@pytest.mark.parametrize("tokens", [0, 1, None])
def test_too_few_tokens_have_no_time_between_them(talk: Talk, tokens: int | None) -> None:
    talk.pick()
    talk.respond(STREAM, b"data", every=1.0)
    talk.end(usage=Usage(completion_tokens=tokens))
    assert talk.measured("request_streaming_tpot_seconds") == []


def test_of_a_streamed_response_the_time_spent_on_its_pieces_counts(talk: Talk) -> None:
    talk.pick()
    talk.respond(STREAM)
    for _ in range(2):
        talk.clock[0] += 10
        talk.observer.chunk_came(b"data")
        talk.clock[0] += 0.25
        talk.observer.chunk_passed()
    talk.end()
    assert talk.measured("response_processing_duration_seconds") == [(1, 0.5)]


def test_of_any_other_response_the_time_from_its_headers_counts(talk: Talk) -> None:
    talk.pick()
    talk.clock[0] += 10
    talk.respond(WHOLE, b"{}", every=2.0)
    talk.end()
    assert talk.measured("response_processing_duration_seconds") == [(1, 2)]


def test_tokens_are_counted_as_the_model_server_says(talk: Talk) -> None:
    talk.pick()
    talk.end(usage=Usage(prompt_tokens=30, completion_tokens=4, cached_tokens=0))
    assert talk.measured("request_input_tokens") == [(1, 30)]
    assert talk.measured("request_output_tokens") == [(1, 4)]
    assert talk.measured("request_cached_tokens") == [(1, 0)]


def test_tokens_that_are_not_mentioned_are_not_counted_as_none(talk: Talk) -> None:
    talk.pick()
    talk.end(usage=Usage(prompt_tokens=0))
    for name in ("request_input_tokens", "request_output_tokens", "request_cached_tokens"):
        assert talk.measured(name) == [], name


@pytest.mark.parametrize(("status", "count"), [(200, None), (204, None), (404, 1), (503, 1)])
def test_a_model_server_that_fails_is_an_error(talk: Talk, status: int, count: int | None) -> None:
    talk.pick()
    talk.end(status=status)
    assert talk.value("request_error_total", error_code="ModelServerError") == count


def test_a_response_without_a_request_is_not_measured(figures: Figures, clock: list[float]) -> None:
    talk = Talk(figures, make_request(), clock)
    talk.respond(STREAM, b"data")
    talk.end()
    assert talk.measured("request_ttft_seconds") == []
    assert value(figures, "pointsman_conversations_total", cause="natural") == 1


# -- conversations --------------------------------------------------------------------------------


def test_conversations_are_counted_by_their_end(figures: Figures, clock: list[float]) -> None:
    for cause in (EndCause.NATURAL, EndCause.NATURAL, EndCause.CLIENT_DISCONNECT):
        Talk(figures, make_request(), clock).end(cause)
    assert value(figures, "pointsman_conversations_total", cause="natural") == 2
    assert value(figures, "pointsman_conversations_total", cause="client-disconnect") == 1
    assert len(series(figures, "pointsman_conversations_total")) == 2


def test_conversations_are_counted_by_what_the_proxy_shows(
    figures: Figures, clock: list[float]
) -> None:
    lean = Modes(BodyMode.BUFFERED, BodyMode.NONE)
    for modes in (lean, lean, Modes(BodyMode.BUFFERED_PARTIAL, BodyMode.NONE), Modes()):
        Talk(figures, make_request(), clock).begin(modes)
    assert value(figures, "pointsman_streams_total", mode="lean-buffered") == 3
    assert value(figures, "pointsman_streams_total", mode="full-duplex") == 1
    assert len(series(figures, "pointsman_streams_total")) == 2


# -- endpoints that go ----------------------------------------------------------------------------


def pick(figures: Figures, endpoint: Endpoint, model: str = "m") -> None:
    talk = Talk(figures, make_request(model=model), [0.0])
    talk.begin()
    talk.pick(endpoint)


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


def test_m_12_an_endpoint_that_is_gone_leaves_no_series(figures: Figures) -> None:
    a, b = endpoints("a", "b")
    for model in ("m", "n"):
        pick(figures, a, model)
        pick(figures, b, model)
    figures.forget(a)
    assert {labels["endpoint_name"] for labels in series(figures, ATTEMPTS)} == {"b"}
    assert attempts(figures, b) == 1


def test_m_12_an_endpoint_whose_port_changed_leaves_no_series_either(figures: Figures) -> None:
    after = evolve(A, port=9000)
    pick(figures, A)
    pick(figures, after)
    assert attempts(figures, after) == 1
    figures.forget(after)
    assert series(figures, ATTEMPTS) == []


def test_an_endpoint_that_is_back_is_counted_from_zero(figures: Figures) -> None:
    pick(figures, A)
    pick(figures, A)
    assert attempts(figures, A) == 2
    figures.forget(A)
    pick(figures, A)
    assert attempts(figures, A) == 1


@pytest.mark.parametrize(
    ("encoding", "label"),
    [
        ("gzip", "gzip"),
        ("br", "br"),
        ("deflate", "deflate"),
        ("zstd", "zstd"),
        ("x\udcff", "other"),
    ],
)
def test_opaque_responses_are_counted_by_a_few_encodings(
    talk: Talk, encoding: str, label: str
) -> None:
    talk.observer.response_opaque(encoding)
    talk.observer.response_opaque("gzip, br")
    shown = series(talk.figures, "pointsman_opaque_responses_total")
    assert sorted(labels["encoding"] for labels in shown) == sorted({label, "other"})
    count = value(talk.figures, "pointsman_opaque_responses_total", encoding=label)
    assert count == (2 if label == "other" else 1)
