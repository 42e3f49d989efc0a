"""The command line: help that teaches, flags that arrive, errors in words with the right exit code."""

from __future__ import annotations

import argparse
import logging
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import memsweep
from config_study import BASE, scaled_parameterization
from memsweep import commands
from memsweep.cli import main
from memsweep.cli.arguments import STUDY_VERBS
from memsweep.cli.usage import COMMANDS
from memsweep.documents import Answer
from memsweep.errors import StoreError
from memsweep.sweep.estimate.nodes import NodeOffer, offered
from paths import ROOT
from sweeping import without_phases


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "tasks").mkdir()
    (tmp_path / "search_spaces" / "small.yaml").write_text(
        f"# A small study\n# of two rows\n{BASE}grid: {{model.width: [2, 4]}}"
    )
    (tmp_path / "tasks" / "broken.py").write_text("import nowhere_to_be_found\n")
    return tmp_path


def _run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memsweep", *words], capture_output=True, text=True, check=False, **options
    )  # type: ignore[call-overload,no-any-return]


@pytest.fixture(autouse=True)
def _quiet_afterwards() -> Iterator[None]:
    """-v turns the log on for the whole process."""
    logger = logging.getLogger("memsweep")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[argparse.Namespace]:
    """Records the arguments of commands that run studies, which are not run here."""
    arrived: list[argparse.Namespace] = []

    def take(args: argparse.Namespace) -> Answer:
        arrived.append(args)
        return Answer({})

    monkeypatch.setattr(commands, "command", lambda verb: take)
    return arrived


@pytest.mark.parametrize("words", [(), *[(name,) for name in COMMANDS]])
def test_help_teaches_with_examples_in_80_columns(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert f"memsweep {words[0] if words else 'sweep'} " in text.partition("examples:")[2]
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_paragraph_of_help_is_prose_or_lines() -> None:
    """Lines stay lines where one is indented: a long line of prose among them would break in two."""
    paragraphs = [part.splitlines() for text in COMMANDS.values() for part in text.long.split("\n\n")]
    assert [each for each in paragraphs if len({line.startswith(" ") for line in each}) > 1] == []


def test_the_examples_of_help_can_be_typed(
    asked: list[argparse.Namespace], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # where init makes its project
    monkeypatch.setattr("memsweep.project.data.fetch", lambda name, *_, **__: name)  # which would need the internet
    shutil.copy(ROOT / "tests/support/nets/min_gru.py", tmp_path / "my_nets.py")
    for name, text in COMMANDS.items():
        examples = text.examples.partition("overrides (")[0].splitlines()[1:]
        for line in filter(None, map(str.strip, examples)):
            program, *words = shlex.split(line.partition(" > ")[0])
            words = [str(tmp_path / word[1:]) if word.startswith("/") else word for word in words]
            assert (program, words[0]) == ("memsweep", name)
            folder = tmp_path if "my_nets:MinGRU" in words else ROOT
            place = [] if name in ("init", "data", "upgrade") else ["--workspace", str(folder)]
            assert main([*words, *place]) == 0, line
    assert {args.command for args in asked} == {*STUDY_VERBS, "audit"}


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"memsweep {memsweep.__version__}\n"


@pytest.mark.parametrize("given", ["16", "cpus=many", "cpus", "cores=4", "gpus=1", "cpus=0", "cpus=4,price=-1"])
def test_a_wrong_variable_ends_only_a_command_that_reckons_with_nodes(
    given: str, workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--workspace", str(workspace), "--results", str(workspace / "results")]
    monkeypatch.setenv("MEMSWEEP_NODE", given)

    def said() -> str:
        return " ".join(capsys.readouterr().err.split())

    wrong = f"(gpus and price may be left out), in finite numbers, got '{given}'"
    for words in (["plan", "small"], ["sweep", "small", "--nodes", "2"], ["submit", "small", "--nodes", "auto"]):
        assert main([*words, *place]) == 2
        assert re.search(rf"MEMSWEEP_NODE: a node is written cpus=16.* {re.escape(wrong)}", said())
    with pytest.raises(SystemExit):
        main(["sweep", "small", "--max-cost", "3", *place])
    assert wrong in said()
    assert main(["plan", "small", "--node", "cpus=4", "--no-probe", *place]) == 0
    assert main(["resume", "small", *place]) == 2
    told = said()
    assert "MEMSWEEP_NODE" not in told
    assert "small" in told  # of which nothing is stored


def test_nodes_and_their_price_arrive(
    asked: list[argparse.Namespace], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ["--workspace", str(workspace)]
    monkeypatch.setenv("MEMSWEEP_NODE", "cpus=16,gpus=1,price=0.5")
    assert main(["plan", "small", *place]) == 0
    assert main(["plan", "small", "--node", "cpus=4", *place]) == 0
    assert main(["sweep", "small", "--max-cost", "3", "--max-nodes", "4", *place]) == 0
    assert main(["submit", "small", "--max-node-hours", "2.5", *place]) == 0
    plan, other, sweep, submit = asked
    assert (offered(plan.node), offered(other.node)) == (NodeOffer(16, 1, 0.5), NodeOffer(4))
    assert (sweep.max_cost, sweep.max_nodes, submit.max_node_hours) == (6.0, 4, 2.5)
    assert main(["sweep", "small", "--max-node-hours", "2", "--max-cost", "3", *place]) == 0
    assert (asked[-1].max_node_hours, asked[-1].max_cost) == (2.0, 6.0)
    for word, nodes in (("auto", "auto"), ("3", 3)):
        for verb in ("sweep", "submit"):
            assert main([verb, "small", "--nodes", word, *place]) == 0
            assert (asked[-1].nodes, offered(asked[-1].node)) == (nodes, NodeOffer(16, 1, 0.5))


def test_every_flag_arrives(asked: list[argparse.Namespace], workspace: Path) -> None:
    place = ["--workspace", str(workspace)]
    assert main(["sweep", "small", *place]) == 0
    assert main(["sweep", "small", "--inline", "a=1", "--no-reuse", "--results", "out", "b=2", "~grid.c", *place]) == 0
    assert main(["-v", "sweep", "--address", "auto", *place, "small", "a=1"]) == 0
    assert main(["plan", "small", "a=1", "--results", "out", "--no-reuse", *place, "b=2"]) == 0
    assert main(["report", "out/small", "--results", "out", "-v"]) == 0
    assert main(["retry", "small", "--force", "--inline", "--results", "s3://bucket/x"]) == 0
    assert main(["extend", "small", "training.seeds=10", "--address", "auto", *place, "model.width=2,4"]) == 0
    limits = ["--max-hours", "0.5", "--max-trials", "3", "--max-failures", "1"]
    assert main(["resume", "small", *limits]) == 0
    assert main(["submit", "small", *limits, *place]) == 0
    assert main(["plan", "small", "--no-probe", *place]) == 0
    assert main(["sweep", "small", "--ray", *place]) == 0
    plain, inline, joined, plan, report, retry, extend, *limited, unmeasured, on_ray = asked
    assert [(one.max_hours, one.max_trials, one.max_failures) for one in limited] == [(0.5, 3, 1)] * 2
    assert (plain.max_hours, plain.max_trials, plain.max_failures) == (None, None, None)
    assert (plan.no_probe, unmeasured.no_probe) == (False, True)
    assert (plain.inline, plain.address, plain.no_reuse, plain.overrides) == (None, None, False, [])
    assert on_ray.inline is False
    assert (plain.results, plain.workspace, plain.verbose) == ("results", workspace, False)
    assert (inline.inline, inline.no_reuse, inline.results) == (True, True, "out")
    assert inline.overrides == ["a=1", "b=2", "~grid.c"]
    assert (joined.address, joined.overrides, joined.verbose) == ("auto", ["a=1"], True)
    assert (plan.study, plan.results, plan.no_reuse, plan.overrides) == ("small", "out", True, ["a=1", "b=2"])
    assert (retry.study, retry.force, retry.inline, retry.results) == ("small", True, True, "s3://bucket/x")
    assert (extend.overrides, extend.address) == (["training.seeds=10", "model.width=2,4"], "auto")
    assert (report.study, report.results, report.verbose) == ("out/small", "out", True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "COMMAND"),
        (("swep", "small"), "Did you mean 'sweep'?"),
        (("sweep",), "the following arguments are required: STUDY (see: memsweep sweep --help)"),
        (("sweep", "small", "--inlin"), "--inlin (see: memsweep sweep --help). Did you mean '--inline'?"),
        (("sweep", "small", "--inline", "--address", "auto"), "not allowed with"),
        (("sweep", "small", "--inline", "--ray"), "not allowed with"),
        (("list", "task"), "invalid choice: 'task'"),
        (("status", "small", "a=1"), "unrecognized arguments: a=1"),
        (("sweep", "small", "--max-hours", "0"), "above 0 (0.5 is half an hour), got '0'"),
        (("sweep", "small", "--max-hours", "inf"), "above 0"),
        (("resume", "small", "--max-trials", "1.5"), "a whole number from 1 is expected, got '1.5'"),
        (("extend", "small", "--max-failures", "0"), "a whole number from 1"),
        (("sweep", "small", "--max-cost", "3"), "say first what an hour of a node costs: MEMSWEEP_NODE=cpus=16,price="),
        (("plan", "small", "--node", "16"), "a node is written cpus=16,gpus=1,price=1.2 (gpus and price may be left"),
        (("sweep", "small", "-m", "a=1,2"), "-m of Hydra: several values make a grid by themselves"),
        (("sweep", "--config-name=small", "x"), "--config-name of Hydra: the study is the word after the command"),
        (("plan", "small", "--config-path", "conf"), "--config-path of Hydra: --workspace DIR"),
        (("plan", "small", "--cfg", "job"), "memsweep plan STUDY shows the trials"),
        (("plan", "small", "--max-hours", "1"), "unrecognized arguments: --max-hours"),
        (("sweep", "small", "--no-probe"), "unrecognized arguments: --no-probe"),
    ],
)
def test_a_wrong_command_line_ends_with_2(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["plan", "sweep", "status", "list"])
@pytest.mark.parametrize("folder", ["a" * 5_000, "a/" * 2_500, "no-such-folder"])
def test_a_workspace_that_is_no_folder_is_told(verb: str, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "tasks" if verb == "list" else "quickstart", "--workspace", folder])
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"argument --workspace: there is no folder '{folder[:100]}" in last
    assert len(last) < 300


def test_a_wrong_study_is_told_before_anything_is_written(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--workspace", str(workspace), "--results", str(workspace / "out")]
    before = sorted(workspace.rglob("*"))
    for command in ("plan", "sweep"):
        assert main([command, "small", "training.stps=1", "model.width=0", *place]) == 2
        told = capsys.readouterr()
        assert without_phases(told.out) == ""
        assert "Traceback" not in told.err
        assert [line for line in told.err.splitlines() if line.startswith("  - ")][-1].startswith("  - training.stps")
    after = [path for path in workspace.rglob("*") if "__pycache__" not in path.parts]
    assert sorted(after) == before


def test_errors_have_tracebacks_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(args: argparse.Namespace) -> int:
        raise StoreError("the record is damaged")

    monkeypatch.setattr(commands, "command", lambda verb: refuse)
    assert main(["report", "small"]) == 4
    assert capsys.readouterr().err == "the record is damaged\n"
    assert main(["report", "small", "-v"]) == 4
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "command", lambda verb: stop)
    assert main(["report", "small"]) == 130


def test_lists_name_what_is_there_and_what_is_broken(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def listed(what: str) -> dict[str, str]:
        assert main(["list", what, "--workspace", str(workspace)]) == 0
        told = capsys.readouterr()
        if what != "studies":  # which are files that need no task
            assert told.err.startswith("warning: task file ")
            assert "broken.py was skipped: ModuleNotFoundError" in told.err
        return dict(line.strip().partition("  ")[::2] for line in told.out.splitlines())

    assert listed("studies")["small"].strip() == "A small study of two rows"
    assert {"direct", "exp", "softplus"} <= set(listed("parameterizations"))
    assert all(text.strip() for text in listed("models").values())
    main(["list", "tasks", "--workspace", str(ROOT)])
    assert "linear_functional" in capsys.readouterr().out


def test_describe(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(name: str) -> str:
        assert main(["describe", name, "--workspace", str(workspace)]) == 0
        return capsys.readouterr().out

    with scaled_parameterization():
        task, part, slow = told("linear_functional"), told("scaled"), told("heavy_tail")
        model = told("diagonal_rnn")
    assert task.startswith("task linear_functional\nReproduce a linear functional")
    assert "= as kernel says" in task
    assert ">= 2" in task
    assert "A parameterization with fields of its own." in part
    assert [words for line in part.splitlines() if (words := line.split())[:1] == ["scale"]] == [
        ["scale", "float", "=", "1.0"]
    ]
    assert "exp, heavy_tail, inverse, lru, relu, scaled, sigmoid, softplus]" in " ".join(model.split())
    assert "f(w)^2 of the rate f: 1/(1 + max(w, 0))^2." in " ".join(slow.split())
    assert "Gradient" not in part  # exp has one, and this is another map
    assert "radii.from" in told("perturbation")
    assert "optimizer steps" in told("training")
    assert "CPU cores per process" in told("resources")
    study = told("small")
    assert "A small study of two rows" in study
    assert "memsweep plan small" in study


@pytest.mark.parametrize(
    "name",
    [
        "name",
        "protocol",
        "task",
        "model",
        "training",
        "perturbation",
        "chain",
        "grid",
        "rows",
        "resources",
        "keep",
        "claims",
        "search",
        "when",
        "confirm",
        "training.learning_rate",
        "perturbation.radii",
        "search.scheduler.grace",
    ],
)
def test_describe_knows_what_messages_name(name: str, workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", name, "--workspace", str(workspace)]) == 0
    assert capsys.readouterr().out.startswith(("section ", "field ")[name.count(".") > 0] + name)


def test_plus_of_hydra_sets_a_field_and_is_told(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "small", "--no-probe", "++training.seeds=7", "--results", str(workspace / "out")]
    assert main([*words, "--workspace", str(workspace)]) == 0
    told = capsys.readouterr()
    assert "to run: 14 seeds" in told.out
    assert "Hydra's + and ++ are not needed" in told.err


def test_describe_suggests(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "trainin", "--workspace", str(workspace)]) == 2
    assert capsys.readouterr().err.endswith("Did you mean 'training'?\n")
    assert main(["describe", "zzzzz", "--workspace", str(workspace)]) == 2
    told = capsys.readouterr().err
    assert re.search(r"studies: .*quickstart, .*small", told)


@pytest.mark.more
def test_a_reader_that_leaves_is_no_error(workspace: Path) -> None:
    command = f"set -o pipefail; {sys.executable} -m memsweep list studies --workspace {ROOT} | true"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode in (0, 141)
    assert ended.stderr == ""


@pytest.mark.more
def test_the_module_and_the_script_are_the_same_command(workspace: Path) -> None:
    ended = _run("list", "studies", cwd=workspace)
    assert ended.returncode == 0
    shown = dict(line.strip().partition(" ")[::2] for line in ended.stdout.splitlines())
    assert shown["small"].strip() == "A small study of two rows"
    assert "quickstart" in shown, "the built-in studies are listed beside those of the folder"
    assert "broken.py was skipped" in _run("list", "tasks", cwd=workspace).stderr
    script = subprocess.run([Path(sys.executable).parent / "memsweep", "--version"], capture_output=True, text=True)
    assert script.stdout == f"memsweep {memsweep.__version__}\n"
