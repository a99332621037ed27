"""The configuration document: the reference's format, read strictly."""

from __future__ import annotations

import json

import pytest

from pointsman.kernel.config import (
    API_VERSION,
    OLD_API_VERSION,
    Config,
    EndpointPickerConfig,
    KeyChoice,
    read_config,
)
from pointsman.kernel.errors import ConfigError
from pointsman.kernel.structure import Duration

TEXT = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- type: queue-scorer
- type: prefix-scorer
  name: prefix
  parameters:
    blockSizeTokens: 64
  consumes: {prefix-hit: precise}
- type: producer
  produces: {prefix-hit: precise}
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: queue-scorer
    weight: 0
  - pluginRef: prefix
dataLayer:
  injectDefaults: false
  sources:
  - pluginRef: metrics
    extractors:
    - pluginRef: core
  discovery:
    pluginRef: endpoints
flowControl:
  maxBytes: 10Mi
  defaultRequestTTL: 0s
  priorityBands:
  - priority: -1
    maxRequests: 5k
requestHandler:
  parsers:
  - pluginRef: openai-parser
"""


def read(text: str) -> Config:
    """The configuration of a *text* without mistakes."""
    config = read_config(text, "test.yaml")
    config.document.refuse_if_mistaken()
    return config


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read(text)
    return str(raised.value).replace("test.yaml: ", "").splitlines()


def test_every_section_is_read() -> None:
    settings = read(TEXT).settings
    scorer, prefix, producer = settings.plugins
    assert [one.instance for one in settings.plugins] == ["queue-scorer", "prefix", "producer"]
    assert scorer.consumes == KeyChoice()
    assert prefix.parameters == {"blockSizeTokens": 64}
    assert prefix.consumes == KeyChoice(bound={"prefix-hit": "precise"})
    assert producer.produces == {"prefix-hit": "precise"}
    (profile,) = settings.scheduling_profiles
    assert [(one.plugin_ref, one.weight) for one in profile.plugins] == [
        ("queue-scorer", 0),
        ("prefix", None),
    ]
    assert settings.data_layer.discovery is not None
    assert settings.data_layer.sources[0].extractors[0].plugin_ref == "core"
    assert settings.flow_control is not None
    assert settings.flow_control.max_bytes == 10 * 2**20
    assert settings.flow_control.default_request_ttl == Duration(0)
    assert settings.flow_control.priority_bands[0].max_requests == 5000
    assert settings.request_handler.parsers[0].plugin_ref == "openai-parser"


@pytest.mark.parametrize("text", ["", "{}", "# nothing", "null", "---\n"])
def test_nothing_is_a_configuration_of_defaults(text: str) -> None:
    assert read(text).settings == EndpointPickerConfig()


def test_the_same_in_json_is_the_same() -> None:
    config = read(TEXT)
    document = json.dumps(config.document.data, indent="\t")
    assert read(document).settings == config.settings


def test_sections_know_where_they_stand() -> None:
    settings = read(TEXT).settings
    assert settings.plugins[2].at == ("plugins", 2)
    assert settings.scheduling_profiles[0].plugins[1].at == (
        "schedulingProfiles",
        0,
        "plugins",
        1,
    )


def test_a_list_narrows_and_a_mapping_binds_what_is_consumed() -> None:
    text = "plugins: [{type: a, consumes: [x, y]}, {type: b, consumes: []}]"
    a, b = read(text).settings.plugins
    assert a.consumes == KeyChoice(only=frozenset({"x", "y"}))
    assert b.consumes == KeyChoice(only=frozenset())


@pytest.mark.parametrize("consumes", ["5", "abc", "[5]", "{a: 5}"])
def test_what_is_consumed_is_a_list_or_a_mapping(consumes: str) -> None:
    (line,) = mistakes(f"plugins:\n- type: a\n  consumes: {consumes}")
    assert line.startswith("line 3: plugins[0].consumes")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "schedulingProfile: []",
            "line 1: schedulingProfile: unknown field (did you mean 'schedulingProfiles'?)",
        ),
        (
            "schedulingProfiles:\n- name: a\n  plugins:\n  - pluginRef: b\n    weigth: 2",
            "line 5: schedulingProfiles[0].plugins[0].weigth: unknown field"
            " (did you mean 'weight'?)",
        ),
        ("plugins:\n- name: x", "line 2: plugins[0].type: is required"),
        ("plugins:\n- type: ''", "line 2: plugins[0].type: must not be empty"),
        ("plugins: {type: a}", "line 1: plugins: must be a list, not a mapping"),
        ("kind: Pod", "line 1: kind: must be EndpointPickerConfig, not 'Pod'"),
        (
            "apiVersion: v1",
            f"line 1: apiVersion: unknown apiVersion 'v1' (known: {API_VERSION})",
        ),
        (
            "featureGates: [flowControll]",
            "line 1: featureGates[0]: unknown feature gate 'flowControll'"
            " (did you mean 'flowControl'?)",
        ),
        (
            "featureGates: [flowControl=maybe]",
            "line 1: featureGates[0]: must be flowControl=true or flowControl=false,"
            " not 'flowControl=maybe'",
        ),
        ("flowControl: {maxBytes: -1}\nfeatureGates: [flowControl]", "out of range"),
        ("flowControl: {maxBytes: 99999999999999G}\nfeatureGates: [flowControl]", "out of range"),
        (
            "flowControl: {defaultRequestTTL: -5s}\nfeatureGates: [flowControl]",
            "line 1: flowControl.defaultRequestTTL: must be at least 0, not -5",
        ),
        ("a: 1\na: 2", "line 2: a: this key stands twice in one mapping"),
        ("[]", "line 1: must be a mapping, not a list"),
        (": :", "not valid YAML or JSON"),
    ],
)
def test_a_mistake_names_line_path_and_what_was_meant(text: str, line: str) -> None:
    assert any(line in told for told in mistakes(text))


@pytest.mark.parametrize("weight", [".nan", ".inf", "-.inf", "1.0e+10"])
def test_a_weight_is_a_number_that_sums_can_bear(weight: str) -> None:
    text = f"schedulingProfiles: [{{name: a, plugins: [{{pluginRef: b, weight: {weight}}}]}}]"
    (line,) = mistakes(text)
    assert "weight: must be from -1e+09 to 1e+09" in line


def test_all_mistakes_come_at_once_in_the_order_of_their_lines() -> None:
    text = "kind: Pod\nplugins:\n- name: x\n- type: 5\nfeatureGates: [x]\nparser: {}\n"
    assert [line.split(":")[0] for line in mistakes(text)] == [
        "line 1",
        "line 3",
        "line 4",
        "line 5",
        "line 6",
    ]


@pytest.mark.parametrize(
    ("entry", "is_open"),
    [("flowControl", True), ("flowControl=true", True), ("flowControl=false", False)],
)
def test_c_03_a_gate_is_open_when_it_is_named(entry: str, is_open: bool) -> None:
    assert read(f"featureGates: [{entry}]").gates["flowControl"] is is_open


@pytest.mark.parametrize("entry", ["flowControll", "flowControll=false", "flowControl=yes"])
def test_c_03_a_gate_that_is_mistyped_is_a_mistake(entry: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"featureGates: [{entry}]")
    assert "featureGates" in str(caught.value)
    assert entry.partition("=")[0] in str(caught.value)


def test_gates_that_are_not_named_are_as_usual() -> None:
    assert read("").gates == {"flowControl": False, "haPopulateNonLeaderDatastore": True}


@pytest.mark.parametrize("gates", ["", "featureGates: [flowControl=false]\n"])
def test_c_03_a_section_without_its_gate_has_no_effect_and_says_so(gates: str) -> None:
    (warning,) = read(f"{gates}flowControl: {{maxRequests: 5}}").warnings
    assert warning == "`flowControl` has no effect: its feature gate is not open"
    detector = "flowControl: {saturationDetector: {pluginRef: d}}"
    assert read(f"{gates}{detector}").warnings == ()


def test_an_open_gate_for_flow_control_says_what_it_does_not_do() -> None:
    (warning,) = read("featureGates: [flowControl]\nflowControl: {}").warnings
    assert "takes effect with a later version" in warning


def test_the_old_api_version_is_deprecated() -> None:
    (warning,) = read(f"apiVersion: {OLD_API_VERSION}").warnings
    assert "is deprecated: write llm-d.ai/v1alpha1" in warning


def test_a_deprecated_parser_moves_to_its_new_place() -> None:
    config = read("parser: {pluginRef: x}")
    assert [one.plugin_ref for one in config.settings.request_handler.parsers] == ["x"]
    assert config.warnings == ("`parser` is deprecated: write requestHandler.parsers",)


def test_a_deprecated_detector_moves_to_its_new_place() -> None:
    config = read("saturationDetector: {pluginRef: x}")
    assert config.settings.flow_control is not None
    assert config.settings.flow_control.saturation_detector is not None
    assert config.settings.flow_control.saturation_detector.plugin_ref == "x"
    (warning,) = config.warnings
    assert "write flowControl.saturationDetector" in warning


def test_the_new_name_wins_over_the_deprecated_one() -> None:
    settings = read(
        "featureGates: [flowControl]\n"
        "parser: {pluginRef: old}\nrequestHandler: {parsers: [{pluginRef: new}]}\n"
        "saturationDetector: {pluginRef: old}\n"
        "flowControl: {saturationDetector: {pluginRef: new}}"
    ).settings
    assert [one.plugin_ref for one in settings.request_handler.parsers] == ["new"]
    assert settings.flow_control is not None
    assert settings.flow_control.saturation_detector is not None
    assert settings.flow_control.saturation_detector.plugin_ref == "new"


def test_a_configuration_knows_its_source() -> None:
    assert read("").source == "test.yaml"
