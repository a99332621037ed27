"""The reference's sample configurations, in our own writing: they load, or it is said why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.actors.main import run

SAMPLES = Path(__file__).with_name("samples")
KV_EVENTS = "'precise-prefix-cache-producer' is not part of this version: it reads the KV events"
OUT_OF_SCOPE = {
    "epp-precise-prefix-cache": KV_EVENTS,
    "epp-burst-prefix-cache": "'burst-prefix-cache-producer' is not part of this version",
    "epp-mm-embeddings-cache": "'mm-embeddings-cache-producer' is not part of this version",
    "sim-epp-kvcache": KV_EVENTS,
    "sim-epp-tokenizer-vllm-http": KV_EVENTS,
    "sim-epp-no-hit-lru": KV_EVENTS,
    "sim-epp-gpu": "'dcgm-data-source' is not part of this version",
    "sim-program-aware": "'program-aware-fairness' is not part of this version",
    "soft-reflective-ceiling-epp": "'soft-reflective-ceiling-policy' is not part of this version",
}
NAMES = sorted(path.stem for path in SAMPLES.glob("*.yaml"))


def test_all_nineteen_are_there() -> None:
    assert len(NAMES) == 19
    assert set(NAMES) > OUT_OF_SCOPE.keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_loads_or_names_what_does_not_exist_here(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(SAMPLES / f"{name}.yaml")
    status = run(["check", "--allow-experimental-plugins", path])
    text = capsys.readouterr().out
    if name in OUT_OF_SCOPE:
        assert status == 2
        assert OUT_OF_SCOPE[name] in text
        assert all("not part of this version" in line for line in text.splitlines())
    else:
        assert (status, text.splitlines()[0]) == (0, f"{path} is valid")


@pytest.mark.parametrize("name", ["pd-topology-epp"])
def test_experimental_types_must_be_allowed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(SAMPLES / f"{name}.yaml")]) == 2
    assert "start with --allow-experimental-plugins" in capsys.readouterr().out
