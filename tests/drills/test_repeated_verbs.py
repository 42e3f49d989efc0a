"""Every command that was stopped goes on when it is repeated as it was typed: killed, interrupted, or at a limit."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from memsweep.cli.usage import COMMANDS
from memsweep.sweep.store.results import Store
from memsweep.sweep.tracking.run_content import OUTCOME
from paths import ROOT
from sweeping import BASE
from watched import watched

pytestmark = pytest.mark.drill


@pytest.fixture(autouse=True)
def _without_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSWEEP_NO_PAGE", "1")


FAILING = """
import os
from dataclasses import dataclass

from memsweep.config.core.fields import setting
from memsweep.registry import register_task
from memsweep.data.api import LinearFunctionalTask
import torch


@register_task("moody")
class Moody(LinearFunctionalTask):
    \"\"\"Fails at a mood, until a file is there.\"\"\"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        \"\"\"How long, and how it feels.\"\"\"

        horizon: int = setting(8, "steps", at_least=2)
        mood: int = setting(0, "13 and 14 are too many")

    weight_power = 0.0
    variance = 1.0

    @property
    def horizon(self):
        return self.config.horizon

    def kernel(self):
        if self.config.mood > 12 and not os.path.exists("better"):
            raise ZeroDivisionError("a mood")
        return torch.exp(-torch.arange(self.horizon, dtype=torch.float64))
"""
MOODY = BASE.replace("{name: linear_functional, kernel: exponential, horizon: 8}", "{name: moody}")
SWEPT = (("sweep", "small", "--inline"),)
TINY = (
    *("grid.task=[{name: parity, horizon: 4}]", "training.steps=2", "training.seeds=1", "confirm.seeds=2"),
    *("search.training.learning_rate={choice: [0.01]}", "search.trials=1", "search.batch=1"),
)
"""The protocol of the atlas, cut down to one task of seconds."""


@dataclass(frozen=True)
class Verb:
    """How a verb is stopped and repeated.

    Attributes:
        words: after the verb.
        before: commands that are run first, to their ends.
        limited: with --max-trials it takes several commands.
        code: of the command that is not disturbed.
    """

    words: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = SWEPT
    limited: bool = False
    code: int = 0


VERBS: Mapping[str, Verb | str] = {
    "plan": Verb(("small", "--no-probe")),
    "sweep": Verb(("small", "--inline"), (), limited=True),
    "sweep --no-reuse": Verb(("small", "--inline", "--no-reuse"), limited=True),
    "resume": Verb(("small", "--inline"), (("sweep", "small", "--inline", "--max-trials", "1"),), limited=True),
    "extend": Verb(("small", "model.width=2,3,4,5", "--inline"), limited=True),
    "extend seeds": Verb(("small", "training.seeds=3", "--inline"), limited=True),
    "retry": Verb(("moods", "--force", "--inline"), (("sweep", "moods", "--inline"),), limited=True),
    "measure": Verb(("small", "perturbation.norm=entrywise", "--inline"), limited=True),
    "status": Verb(("small",)),
    "sync": Verb(("small",)),
    "report": Verb(("small", "--figures", "png,svg")),
    "report --out": Verb(
        ("small", "wider", "--out", "compared", "--figures", "svg"),
        (*SWEPT, ("sweep", "small", "name=wider", "training.steps=10", "--inline")),
    ),
    "weights": Verb(("small", "model.width=2", "--seed", "0", "out.safetensors")),
    "audit": Verb(("lru", "--width", "4", "--horizon", "64", "--seconds", "600", "--page", "audit.html"), ()),
    "atlas": Verb(("own_mixer:Mixer", *TINY, "--inline"), ()),
    "decide": "tests/studies/decide/test_decide.py::test_kills_in_the_middle_of_rounds_change_no_byte_of_the_tables",
    "describe": Verb(("training",), ()),
    "list": Verb(("tasks",), ()),
    "schema": Verb(("plan",), ()),
    "init": Verb(("my_project",), ()),
    "data": "tests/project/test_data.py::test_a_download_that_was_cut_off_goes_on_where_it_stopped",
    "upgrade": "tests/commands/test_upgrade.py::test_an_interrupted_upgrade_goes_on",
    "submit": "tests/drills/test_submit_drills.py::test_a_study_is_left_alone_stopped_and_finished",
}
"""Every verb, or the test that repeats it where it needs a server. Flags of the name say which way is meant."""


def workspace(folder: Path, verb: Verb) -> Path:
    """A workspace in which the commands before the verb's have ended."""
    (folder / "search_spaces").mkdir(parents=True)
    (folder / "tasks").mkdir()
    (folder / "tasks" / "moody.py").write_text(FAILING)
    (folder / "own_mixer.py").write_text((ROOT / "tests" / "support" / "nets" / "mixer.py").read_text())
    (folder / "search_spaces" / "small.yaml").write_text(f"{BASE}grid: {{model.width: [2, 3]}}\n")
    (folder / "search_spaces" / "moods.yaml").write_text(f"{MOODY}grid: {{task.mood: [1, 13, 14]}}\n")
    for words in verb.before:
        ended = watched(words, folder)
        assert ended.code in (0, 1, 3), ended.told
    (folder / "better").touch()
    return folder


_WASTE = (".set-aside", "/.report-", "/.partial", "__pycache__")
"""Traces that a killed command may leave until later ones sweep them away."""


def left(folder: Path) -> dict[str, object]:
    """A person's state in the end: files by name, tables and pages by content, results and runs in MLflow."""
    kept: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name.split("/")[-2:-1] in (["lease"], ["journal"]) or "mlartifacts" in name:
            continue
        if name.endswith((".lock", "-journal")) or any(part in name for part in _WASTE):
            continue
        if (path.parent.parent / "records" / path.name).is_file() and path.parent.name == "failures":
            continue  # of a trial that has a result now: the store passes it over
        kept[name] = path.read_bytes() if path.suffix in (".csv", ".safetensors", ".py", ".toml", ".yaml") else None
    for place in folder.glob("results/*/records"):
        store = Store(place.parent)
        assert not store.check(store.identities())
        kept[f"results of {place.parent.name}"] = sorted(map(repr, (r["summary"] for r in store.records())))
    return kept | {"runs": sorted(runs_in(folder))}


def runs_in(folder: Path) -> list[tuple[str, str, str]]:
    """Every run of MLflow: experiment, status and outcome."""
    from mlflow import MlflowClient

    if not (folder / "results" / "mlflow.db").is_file():
        return []
    client = MlflowClient(f"sqlite:///{folder}/results/mlflow.db")
    found = [(e.name, run) for e in client.search_experiments() for run in client.search_runs([e.experiment_id])]
    return [(name, run.info.status, run.data.tags.get(OUTCOME, "")) for name, run in found]


OWN = {name: verb for name, verb in VERBS.items() if isinstance(verb, Verb)}
_LONG = {
    "plan",
    "sweep --no-reuse",
    "resume",
    "extend seeds",
    "measure",
    "sync",
    "report --out",
    "audit",
    "atlas",
    "weights",
}
"""Those that the gate leaves out, because the others go most of the same ways."""


def _marked(names: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(name, marks=[pytest.mark.long] if name in _LONG else []) for name in names]


def test_every_verb_says_how_it_is_repeated() -> None:
    assert {name.partition(" ")[0] for name in VERBS} == COMMANDS.keys()
    for name, verb in VERBS.items():
        if isinstance(verb, str):
            file, _, test = verb.partition("::")
            assert f"def {test}(" in (ROOT / file).read_text(), name


@pytest.mark.parametrize("name", _marked(OWN))
def test_a_killed_command_goes_on_when_it_is_repeated(name: str, tmp_path: Path) -> None:
    verb = OWN[name]
    words = (name.partition(" ")[0], *verb.words)
    fresh = workspace(tmp_path / "fresh", verb)
    whole = Path(shutil.copytree(fresh, tmp_path / "whole"))
    undisturbed = watched(words, whole)
    assert undisturbed.code == verb.code, undisturbed.told
    expected, count = left(whole), undisturbed.touches
    for place, at in enumerate(sorted({at for at in (count // 3, 2 * count // 3) if at})):
        folder = Path(shutil.copytree(fresh, tmp_path / f"killed{place}"))
        killed = watched(words, folder, at=at)
        assert killed.code == -signal.SIGKILL, killed.told
        repeated = watched(words, folder)
        assert repeated.code == verb.code, f"killed at {at} of {count}: {repeated.told}"
        assert left(folder) == expected, f"killed at {at} of {count}"


@pytest.mark.parametrize("name", _marked(name for name, verb in OWN.items() if verb.limited))
def test_a_command_that_a_limit_stopped_goes_on_when_it_is_repeated(name: str, tmp_path: Path) -> None:
    verb = OWN[name]
    words = (name.partition(" ")[0], *verb.words)
    folder = workspace(tmp_path / "fresh", verb)
    whole = Path(shutil.copytree(folder, tmp_path / "whole"))
    assert watched(words, whole).code == 0
    codes, told = list[int](), ""
    while len(codes) < 6 and (not codes or codes[-1] == 3):
        stopped = watched((*words, "--max-trials", "1"), folder)
        codes.append(stopped.code)
        told = stopped.told
        assert ("Run the same command again" in told) == (codes[-1] == 3), told
    assert codes[-1] == 0, (codes, told)
    assert len(codes) <= 4, "each command gets further"
    assert left(folder)["runs"] == left(whole)["runs"]
    ends = {file: content for file, content in left(folder).items() if file.endswith("report/verdicts.csv")}
    assert ends.items() <= left(whole).items()
