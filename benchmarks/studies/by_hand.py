"""``memsweep decide`` against a person who types every command that the report prints, from the same first study.

    python -m benchmarks.studies.by_hand [STUDY.yaml] [override ...]

Both go on with copies of the study's own plan, until every question has a verdict or there is no new advice. The
numbers are processor seconds of all commands after the first one, and the models that they trained or measured. A
command's start and its report count, too.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STUDY = """
# Does a small model hold an exponential memory?
name: small
task: {name: linear_functional, kernel: exponential}
model: {name: diagonal_rnn, parameterization: direct}
training: {seeds: 3, steps: 300, batch_size: 32, validation_size: 64}
perturbation: {balls: [recurrent], radii: {from: 0.001, to: 3, count: 8}, starts: 0, ascent_steps: 4}
grid: {model.width: [2, 4], task.horizon: [8, 16, 32]}
"""
_MOST = 8
"""Commands that a person types at most."""
_ADVICE = re.compile(r"^To decide(?: most| a part)?: memsweep (extend .*?)(?:, or .*)?$", re.MULTILINE)
_FLAGS = ("--inline", "--no-page")


@dataclass
class Side:
    """One way to a verdict.

    Attributes:
        name: decide, or by hand.
        seconds: of the processor.
        commands: that were typed.
        models: that there are at the end: seeds of all stored trials.
        verdicts: at the end.
    """

    name: str
    seconds: float
    commands: list[str]
    models: int
    verdicts: list[str]


def main(words: Sequence[str]) -> None:
    """Prints both sides as JSON, and the share that decide takes."""
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "first"
        first.mkdir()
        overrides = list(words)
        text = Path(overrides.pop(0)).read_text("utf-8") if overrides and overrides[0].endswith(".yaml") else STUDY
        (first / "study.yaml").write_text(text, "utf-8")
        _, said = _run(first, "sweep", "study.yaml", *overrides, *_FLAGS)
        found = []
        for side in (_decided, _by_hand):
            place = Path(shutil.copytree(first, Path(folder) / side.__name__))
            found.append(side(place, overrides, said))
    for one in found:
        print(json.dumps(vars(one)))
    if found[1].commands:
        print(f"decide takes {found[0].seconds / found[1].seconds:.2f} of the processor seconds by hand")
    else:
        print("the first study's report advises no command: there is nothing to compare")


def _decided(place: Path, overrides: Sequence[str], said: str) -> Side:
    del said
    command = ("decide", "study.yaml", *overrides)
    seconds, _ = _run(place, *command, *_FLAGS)
    return Side("decide", seconds, [" ".join(command)], *_end(place))


def _by_hand(place: Path, overrides: Sequence[str], said: str) -> Side:
    seconds, typed = 0.0, list[str]()
    while (advice := _ADVICE.search(said)) and advice[1] not in typed and len(typed) < _MOST:
        typed.append(advice[1])
        more, said = _run(place, *shlex.split(advice[1]), *_FLAGS)
        seconds += more
    return Side("by hand", seconds, typed, *_end(place))


def _run(place: Path, *words: str) -> tuple[float, str]:
    """Processor seconds of a command, and what it says."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    memsweep = [sys.executable, "-m", "memsweep", *words]
    done = subprocess.run(memsweep, cwd=place, env=os.environ | {"COLUMNS": "2000"}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"memsweep {' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout + done.stderr


def _end(place: Path) -> tuple[int, list[str]]:
    """Models of the stored trials, replaced ones among them, and the verdicts."""
    (study,) = (path.parent for path in (place / "results").glob("*/plan.json"))
    records = [json.loads(path.read_bytes()) for path in (study / "records").glob("*.json")]
    verdicts = (study / "report" / "verdicts.csv").read_text("utf-8").splitlines()
    column = verdicts[0].split(",").index("verdict")
    return sum(record["summary"]["replicas"] for record in records), [row.split(",")[column] for row in verdicts[1:]]


if __name__ == "__main__":
    main(sys.argv[1:])
