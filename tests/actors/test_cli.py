"""The command line. C-xx are field reports whose fault a test keeps away."""

from __future__ import annotations

import argparse
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman import __version__
from pointsman.actors import main as commands
from pointsman.actors.cli import make_parser, with_command
from pointsman.actors.main import main, run
from pointsman.kernel.errors import ConfigError, KernelError, Mistake, RestartBudgetSpent

CONFIG = """\
plugins:
- name: endpoints
  type: file-discovery
  parameters: {path: PATH}
dataLayer: {discovery: {pluginRef: endpoints}}
"""


def status(*arguments: str) -> int | str | None:
    """The exit status of a command line, whichever way it ends."""
    try:
        return run(arguments)
    except SystemExit as exc:
        return exc.code


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command line that must end with status 2 and one line; that line."""

    def refused(*arguments: str) -> str:
        assert status(*arguments) == 2
        said = capsys.readouterr()
        assert said.out == ""
        (line,) = said.err.splitlines()
        return line

    return refused


def options(*arguments: str) -> argparse.Namespace:
    top, _ = make_parser()
    return top.parse_args(with_command(arguments))


# -- flags ----------------------------------------------------------------------------------------


def test_a_boolean_flag_does_not_take_the_file_behind_it_for_its_value() -> None:
    said = options("check", "--allow-experimental-plugins", "picker.yaml")
    assert (said.allow_experimental_plugins, said.config) == (True, "picker.yaml")


@pytest.mark.parametrize(
    "flag",
    [
        "--refresh-prometheus-metrics-interval=5s",
        "--grpc-max-send-msg-size=10Mi",
        "--enable-pprof=false",
        "--ha-enable-leader-election=false",
    ],
)
def test_flags_of_the_reference_that_change_nothing_are_taken(flag: str) -> None:
    assert options("serve", flag).command == "serve"


@pytest.mark.parametrize(
    ("flag", "complaint"),
    [
        ("--ha-enable-leader-election", "replicas elect no leader here"),
        ("--lora-info-metric=x", "name metrics in engineConfigs"),
        ("--total-queued-requests-metric", "name metrics in engineConfigs"),
    ],
)
def test_flags_of_the_reference_that_would_change_something_are_refused(
    flag: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(["serve", flag])
    assert complaint in capsys.readouterr().err


def test_flags_have_the_reference_s_defaults() -> None:
    said = options()
    assert said.command == "serve"
    assert (said.grpc_port, said.grpc_health_port, said.metrics_port) == (9002, 9003, 9090)
    assert (said.drain_timeout, said.metrics_staleness_threshold) == (30.0, 2.0)
    assert (said.secure_serving, said.allow_experimental_plugins, said.v) == (True, False, 2)
    assert said.config_file is said.config_text is said.bind_address is None


@pytest.mark.parametrize(
    ("arguments", "flag", "value"),
    [
        (["--secure-serving=false"], "secure_serving", False),
        (["--secure-serving", "false"], "secure_serving", False),
        (["--secure-serving=F"], "secure_serving", False),
        (["--secure-serving=0"], "secure_serving", False),
        (["--secure-serving"], "secure_serving", True),
        (["--secure-serving", "--v=1"], "secure_serving", True),
        (["--allow-experimental-plugins"], "allow_experimental_plugins", True),
        (["-v", "4"], "v", 4),
        (["-v=4"], "v", 4),
        (["--v", "4"], "v", 4),
        (["--v=4"], "v", 4),
        (["--grpc-port", "1"], "grpc_port", 1),
        (["--grpc-port=0"], "grpc_port", 0),
        (["--refresh-metrics-interval=1m30s"], "refresh_metrics_interval", 90.0),
        (["--refresh-metrics-interval=50ms"], "refresh_metrics_interval", 0.05),
        (["--drain-timeout", "0"], "drain_timeout", 0.0),
        (["--grpc-max-recv-msg-size=10Mi"], "grpc_max_recv_msg_size", 10 << 20),
        (["--grpc-max-recv-msg-size=10MiB"], "grpc_max_recv_msg_size", 10 << 20),
        (["--grpc-max-recv-msg-size", "5000"], "grpc_max_recv_msg_size", 5000),
        (["--bind-address=::1"], "bind_address", "::1"),
        (["--config-text", "plugins: []"], "config_text", "plugins: []"),
        (["serve", "--metrics-port=1"], "metrics_port", 1),
    ],
)
def test_flags_are_spelled_as_in_the_reference(
    arguments: list[str], flag: str, value: object
) -> None:
    assert getattr(options(*arguments), flag) == value


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ([], "serve"),
        (["--grpc-port=1"], "serve"),
        (["-v", "4"], "serve"),
        (["serve"], "serve"),
        (["check", "x"], "check"),
    ],
)
def test_arguments_that_begin_with_dashes_mean_serve(arguments: list[str], command: str) -> None:
    assert with_command(arguments)[0] == command


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--grpc-prot=1"], "unknown argument '--grpc-prot'; did you mean '--grpc-port'"),
        (
            ["--secure-servin"],
            "unknown argument '--secure-servin'; did you mean '--secure-serving'",
        ),
        (["--zzz"], "pointsman serve: error: unknown argument '--zzz'"),
        (["--grpc-port", "1", "extra"], "unknown argument 'extra'"),
        (["--grpc-port=x"], "argument --grpc-port: 'x' is no port number"),
        (["--grpc-port=65536"], "argument --grpc-port: '65536' is no port number"),
        (["--grpc-port=-1"], "argument --grpc-port: '-1' is no port number"),
        (["--grpc-port"], "argument --grpc-port: expected one argument"),
        (["--secure-serving=maybe"], "'maybe' is neither true nor false"),
        (["-v", "loud"], "argument -v/--v: invalid int value: 'loud'"),
        (["--bind-address=localhost"], "'localhost' is no IP address"),
        (["--drain-timeout=30"], "'30' is no duration such as '200ms'"),
        (["serv"], "invalid choice: 'serv'"),
        (["check"], "the following arguments are required: CONFIG"),
        (["check", "x", "--formt=json"], "unknown argument '--formt'; did you mean '--format'"),
        (["graph", "x", "--format=png"], "invalid choice: 'png'"),
        (["demo", "--onec"], "unknown argument '--onec'; did you mean '--once'"),
        (["sim", "--seeed=1"], "unknown argument '--seeed'; did you mean"),
    ],
)
def test_a_mistake_in_the_arguments_is_one_line_with_the_nearest_name(
    arguments: list[str], line: str, refused: Callable[..., str]
) -> None:
    said = refused(*arguments)
    assert said.startswith("pointsman")
    assert line in said


@pytest.mark.parametrize("interval", ["abc", "5", "", "1x", "--5s"])
def test_c_06_an_interval_that_is_none_is_refused(
    interval: str, refused: Callable[..., str]
) -> None:
    assert "is no duration" in refused(f"--refresh-metrics-interval={interval}")


@pytest.mark.parametrize("size", ["-1", "99999999999999G", "B", "ten", "1Ki2"])
def test_c_06_a_size_that_is_none_is_refused(size: str, refused: Callable[..., str]) -> None:
    assert "--grpc-max-recv-msg-size" in refused(f"--grpc-max-recv-msg-size={size}")


@given(
    st.sampled_from(["--drain-timeout", "--grpc-max-recv-msg-size", "--grpc-port", "-v"]), st.text()
)
def test_no_value_makes_the_parser_fail_otherwise(flag: str, value: str) -> None:
    try:
        said = options(f"{flag}={value}")
    except SystemExit as exc:
        code = exc.code
    else:
        code = 2 if said.command == "serve" else 0
    assert code == 2


def test_c_08_both_sources_of_configuration_are_one_too_many(refused: Callable[..., str]) -> None:
    line = refused("--config-file=a", "--config-text=b")
    assert line == "pointsman serve: error: --config-file and --config-text exclude each other"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("--version") == 0
    assert capsys.readouterr().out == f"pointsman {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "-h"], ["demo", "-h"], ["sim", "-h"]])
def test_help_is_printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*arguments) == 0
    assert capsys.readouterr().out.startswith("usage: pointsman")


# -- what serve needs -----------------------------------------------------------------------------


def test_a_missing_configuration_is_named(tmp_path: Path, refused: Callable[..., str]) -> None:
    path = tmp_path / "missing.yaml"
    assert refused(f"--config-file={path}") == f"pointsman: {path}: No such file or directory"


def test_c_08_without_a_configuration_the_message_names_the_flag(
    refused: Callable[..., str],
) -> None:
    line = refused()
    assert "--config-file" in line
    assert "dataLayer" in line


def test_each_mistake_of_a_configuration_is_a_line_with_file_line_and_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "plugins:\n- type: queue-scorr\n- type: max-score-picker\n"
        "  parameters: {maxNumOfEndpoint: 2}\nschedulingProfile: []\n"
    )
    assert status("--config-file", str(path)) == 2
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        f"pointsman: {path}: line 2: plugins[0].type: unknown plugin type 'queue-scorr'"
        " (did you mean 'queue-scorer'?)",
        f"pointsman: {path}: line 4: plugins[1].parameters.maxNumOfEndpoint: unknown field"
        " (did you mean 'maxNumOfEndpoints'?)",
        f"pointsman: {path}: line 5: schedulingProfile: unknown field"
        " (did you mean 'schedulingProfiles'?)",
    ]


def test_a_missing_endpoints_file_is_named(tmp_path: Path, refused: Callable[..., str]) -> None:
    path = tmp_path / "endpoints.yaml"
    line = refused("--config-text", CONFIG.replace("PATH", str(path)))
    assert line == f"pointsman: {path}: No such file or directory"


def test_a_half_written_endpoints_file_is_named_with_its_line(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text('endpoints:\n- {name: a, addr"')
    line = refused("--config-text", CONFIG.replace("PATH", str(path)))
    assert line.startswith(f"pointsman: {path}: line 2: not valid YAML or JSON")


@pytest.fixture
def ports() -> Generator[list[int], None, None]:
    """Three ports of the loopback that are taken."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(3)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
            one.listen()
        yield [one.getsockname()[1] for one in sockets]


@pytest.mark.parametrize("flag", ["--grpc-port", "--grpc-health-port", "--metrics-port"])
def test_a_port_in_use_is_named(
    flag: str, ports: list[int], tmp_path: Path, refused: Callable[..., str]
) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text("endpoints: []")
    free = dict.fromkeys(["--grpc-port", "--grpc-health-port", "--metrics-port"], 0)
    flags = [f"{name}={number}" for name, number in {**free, flag: ports[0]}.items()]
    config = CONFIG.replace("PATH", str(path))
    line = refused(
        "--config-text", config, "--bind-address=127.0.0.1", "--secure-serving=false", *flags
    )
    assert line.startswith("pointsman: ")
    assert str(ports[0]) in line
    assert "in use" in line


# -- how commands end -----------------------------------------------------------------------------


def ending(failure: BaseException | int | None) -> int:
    async def command(options: argparse.Namespace) -> int | None:
        if isinstance(failure, BaseException):
            raise failure
        return failure

    return commands._run(command, argparse.Namespace())


@pytest.mark.parametrize(("answer", "expected"), [(None, 0), (0, 0), (1, 1)])
def test_a_command_s_answer_is_its_status(answer: int | None, expected: int) -> None:
    assert ending(answer) == expected


BUDGET = RestartBudgetSpent("metrics", 6, 60.0)


@pytest.mark.parametrize(
    ("failure", "expected", "said"),
    [
        (ConfigError("f", [Mistake("bad")]), 2, ["pointsman: f: bad"]),
        (OSError(98, "in use"), 2, ["pointsman: [Errno 98] in use"]),
        (KernelError("no."), 2, ["pointsman: no"]),
        (KeyboardInterrupt(), 128 + signal.SIGINT, []),
        (ExceptionGroup("", [ExceptionGroup("", [OSError("x")])]), 2, ["pointsman: x"]),
        (ExceptionGroup("", [BUDGET]), 1, [f"pointsman: giving up: {BUDGET}"]),
        (BaseExceptionGroup("", [KeyboardInterrupt()]), 128 + signal.SIGINT, []),
    ],
)
def test_a_failure_is_a_line_and_a_status(
    failure: BaseException, expected: int, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(failure) == expected
    assert capsys.readouterr().err.splitlines() == said


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ExceptionGroup):
        ending(ExceptionGroup("", [ZeroDivisionError()]))


def test_the_program_ends_with_the_status() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
