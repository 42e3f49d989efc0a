"""Stored JSON with a random value in a random place, under a right hash: what a program of somebody else might write.

A seed gives the same values every time.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import shutil
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memsweep.cli import main
from memsweep.sweep.store.record import sealed, to_json
from tests.campaign.places import ROOT

KINDS = ("plan", "record", "failure", "journal", "search")
COMMANDS = ("status", "report", "plan", "resume", "retry", "extend", "sync")
STUDY = """
task: {name: linear_functional, kernel: exponential, horizon: 8}
model: {name: diagonal_rnn, width: 2, parameterization: exp}
training: {seeds: 2, steps: 4, batch_size: 8, validation_size: 8, validate_every: 2}
perturbation: {radii: {from: 1e-2, to: 1.0, count: 2}, starts: 1, ascent_steps: 1, test_size: 8}
"""
GRID = "grid: {model.width: [2, 3]}\n"
SEARCH = """
search:
  training.learning_rate: {log_uniform: [1e-3, 1e-1]}
  algorithm: tpe
  trials: 3
  batch: 3
"""


@dataclass(frozen=True)
class Case:
    """One harmed file and the command that read it.

    Attributes:
        text: what was put where.
        command: the words after ``memsweep``.
        code: its exit code; None after an exception.
        output: all that it printed, with the traceback of an exception.
    """

    text: str
    command: tuple[str, ...]
    code: int | None
    output: str

    @property
    def is_right(self) -> bool:
        """Whether it ended as a command may end, without a traceback."""
        return self.code in (0, 1, 2, 4) and "Traceback" not in self.output


def studies(folder: Path) -> list[Path]:
    """Results folders with one finished study each, a grid and a search; of the grid one trial has failed."""
    made = []
    for name, rest in (("grid", GRID), ("search", SEARCH)):
        (folder / name).mkdir(parents=True)
        (folder / name / f"{name}.yaml").write_text(STUDY + rest)
        case = run(folder / name, ("sweep", str(folder / name / f"{name}.yaml"), "--inline"))
        if case.code != 0:
            raise RuntimeError(case.output)
        made.append(folder / name)
    study = folder / "grid" / "grid"
    record = sorted((study / "records").glob("*.json"))[0]
    record.unlink()
    (study / "failures").mkdir(exist_ok=True)
    failure = {"outcome": "failed", "error": "ValueError: 7", "traceback": "Traceb...", "study": "grid"}
    content = {**failure, "identity": record.stem, "time": "2026-01-01T00:00:00+00:00"}
    (study / "failures" / record.name).write_text(json.dumps(content))
    return made


def run(results: Path, words: tuple[str, ...], text: str = "") -> Case:
    """``memsweep WORDS`` in this process, with these results."""
    output, code = io.StringIO(), None
    places = ("--results", str(results)) + (() if words[0] == "status" else ("--workspace", str(ROOT)))
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code = main([*words, *places])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except Exception:
            traceback.print_exc()
    return Case(text, words, code, output.getvalue())


def case(seed: str, pristine: Path, command: str) -> Case:
    """One harmed file in a copy of a study, and what a command made of it.

    Args:
        seed: of the random choices.
        pristine: one of ``studies``.
        command: one of COMMANDS.
    """
    with tempfile.TemporaryDirectory(prefix="memsweep-foreign-") as scratch:
        results = Path(scratch) / pristine.name
        shutil.copytree(pristine, results)
        text = harm(results / pristine.name, random.Random(seed))
        file = str(pristine / f"{pristine.name}.yaml")
        words: tuple[str, ...] = {"plan": ("plan", file, "--no-probe"), "extend": ("extend", file)}.get(
            command, (command, pristine.name)
        )
        words += ("model.width=2,3,4",) if command == "extend" else ()
        words += ("--inline",) if command in ("resume", "retry", "extend") else ()
        return run(results, words, f"seed {seed}: {text}")


def harm(study: Path, dice: random.Random) -> str:
    """Puts a value into one file of a study's folder; returns what was put where."""
    files = {
        "plan": [study / "plan.json"],
        "record": sorted((study / "records").glob("*.json")),
        "failure": sorted((study / "failures").glob("*.json")),
        "journal": sorted((study / "journal").glob("*.jsonl")),
        "search": sorted((study / "search").glob("*/*.json")),
    }
    kind = dice.choice([kind for kind in KINDS if files[kind]])
    file = dice.choice(files[kind])
    if kind == "journal":
        lines = file.read_text().splitlines()
        number = dice.randrange(len(lines))
        content, text = changed(json.loads(lines[number]), dice)
        lines[number] = json.dumps(content)
        file.write_text("\n".join(lines))
        return f"line {number} of {file.name}: {text}"
    before = json.loads(file.read_text())
    content, text = changed(before, dice)
    if isinstance(content, dict) and "sha256" in before:
        file.write_bytes(to_json(sealed(content), "it"))
    else:
        file.write_text(json.dumps(content))
    if kind == "plan":
        shutil.copy(file, study / "plan.copy.json")
    return f"{kind} {file.name}: {text}"


def changed(content: dict[str, Any], dice: random.Random) -> tuple[dict[str, Any], str]:
    """The content with another value in one place, a value less, or one more."""
    content = copy.deepcopy(content)
    here: Any = content
    path: list[Any] = []
    while True:
        keys = [key for key in here if key != "sha256" or path] if isinstance(here, dict) else range(len(here))
        path.append(dice.choice(list(keys)))
        inner = here[path[-1]]
        if not isinstance(inner, dict | list) or not inner or dice.random() < 0.25:
            break
        here = inner
    value = random_value(dice)
    fate = dice.random()
    if fate < 0.1:
        del here[path[-1]]
        return content, f"without {path}"
    if fate < 0.2 and isinstance(here, dict):
        here[random_text(dice)] = value
        return content, f"{json.dumps(value)[:100]} beside {path}"
    here[path[-1]] = value
    return content, f"{json.dumps(value)[:100]} at {path}"


def random_value(dice: random.Random, depth: int = 0) -> Any:
    """A JSON value, more often an awkward one."""
    kind = dice.randrange(8 if depth < 3 else 6)
    if kind == 0:
        return dice.choice([None, True, False])
    if kind == 1:
        return dice.choice([0, -1, 1, 7, 2**31, -(2**63), 2**63, 10**400, dice.randrange(100)])
    if kind == 2:
        return dice.choice([0.0, -0.0, 0.5, 1e308, -1e308, 5e-324, dice.gauss(0.0, 10.0)])
    if kind in (3, 4, 5):
        return random_text(dice)
    if kind == 6:
        return [random_value(dice, depth + 1) for _ in range(dice.randrange(4))]
    return {random_text(dice): random_value(dice, depth + 1) for _ in range(dice.randrange(4))}


def random_text(dice: random.Random) -> str:
    """Text, more often an awkward one."""
    texts = ["", " ", "nan", "inf", "done", "failed", "name", "../..", "\x1b[2J", "\x00", "\ud800", "a" * 5000, "1e999"]
    return dice.choice([*texts, "".join(chr(dice.randrange(1, 0x3000)) for _ in range(dice.randrange(9)))])
