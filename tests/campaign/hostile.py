"""Hostile inputs: studies, overrides, command lines, results folders, checkpoints, drawn from a seed.

Whatever is put in, memsweep does what it says, or refuses in words; no traceback, and nothing written beside the place
that it was
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from test_checkpoints import KEY, TRAINING, Held, content, good, signed, started
from test_hostile_anything import ANYTHING, TEXTS, WORD

from memsweep.learning.state import checkpoint_file
from memsweep.learning.state.checkpoint import Checkpoint
from sweeping import BASE
from tests.campaign import foreign_values
from tests.campaign.inputs import aliases, factories, full_output, verbatim
from tests.campaign.inputs.answers import answered
from tests.campaign.places import ROOT

Sort = Callable[[random.Random, Path], None]
"""Tries one input in an empty folder; raises when the answer is wrong."""


def _typed(strategy: Any, number: int) -> Any:
    """One example of a strategy."""
    drawn: list[Any] = []

    @seed(number)
    @settings(
        max_examples=1, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def take(value: Any) -> None:
        drawn.append(value)

    take()
    return drawn[-1]


def study(luck: random.Random, folder: Path) -> None:
    """A study file: a tree of anything, a valid study with mistakes, a text."""
    strategy, check = ANYTHING[luck.choice(["a tree", "a study with mistakes", "a text"])]
    check(folder, _typed(strategy, luck.randrange(2**32)))


def overrides(luck: random.Random, folder: Path) -> None:
    """Words after the study's name."""
    strategy, check = ANYTHING["overrides"]
    check(folder, _typed(strategy, luck.randrange(2**32)))


_VERBS = ["plan", "sweep", "resume", "extend", "retry", "status", "sync", "report", "list", "describe", "nonsense", ""]
_FLAGS = [
    "--inline", "--no-reuse", "--no-probe", "--max-hours", "-1", "nan", "--max-trials", "0", "--max-failures", "x",
    "--force", "-v", "--", "--results", "--workspace", "--address", "--help", "--version", "-", "--optuna", "[", "a=b",
]  # fmt: skip


def command_line(luck: random.Random, folder: Path) -> None:
    """Verbs, flags, names and texts in any order; no study of these names exists, and so nothing runs."""
    words = [luck.choice(_VERBS)]
    for _ in range(luck.randrange(5)):
        strategy = luck.choice([TEXTS, WORD, None, None])
        word = luck.choice(_FLAGS) if strategy is None else _typed(strategy, luck.randrange(2**32))
        words.append(str(word).replace("\0", ""))  # no program can be given a zero
    words += ["--results", str(folder / "results"), "--workspace", str(folder)]
    answered(words)
    made = [path.name for path in folder.iterdir()]
    if set(made) - {"results"}:
        raise AssertionError(f"{words} made {made}")


_finished: Path | None = None


def _finished_study() -> Path:
    """The results of a study of two trials."""
    global _finished
    if _finished is None:
        _finished = Path(tempfile.mkdtemp(prefix="campaign.hostile."))
        (_finished / "small.yaml").write_text(f"{BASE}grid: {{model.width: [2, 3]}}\n")
        words = ["sweep", str(_finished / "small.yaml"), "--inline", "--results", str(_finished / "results")]
        answered([*words, "--workspace", str(ROOT)], frozenset({0}))
    return _finished / "results" / "small"


def results_folder(luck: random.Random, folder: Path) -> None:
    """A finished study some of whose files hold something else; ``status`` reads it, and at times ``report``."""
    place = Path(shutil.copytree(_finished_study(), folder / "results" / "small"))
    files = sorted(path for path in place.rglob("*") if path.is_file() and "report" not in path.parts)
    for path in luck.sample(files, luck.randrange(1, 4)):
        data = path.read_bytes()
        if path.suffix in (".json", ".jsonl") and luck.random() < 0.7:
            with contextlib.suppress(ValueError, RecursionError):
                data = json.dumps(_changed(json.loads(data), luck)).encode()
        else:
            data = _damaged(data, luck)
        path.write_bytes(data)
    verb = luck.choice(["status", "status", "status", "report"])
    answered([verb, "small", "--results", str(folder / "results")])


_VALUES: list[Any] = [
    None, True, False, 0, -1, 10**400, 1e308, float("nan"), float("inf"), "", "x", "\x1b[2J\x07", "\ud800", "../../x",
    [], {}, [[]], [None], {"": None}, {"a": {"b": []}}, "9" * 5000, -(2**63), 2**64, "2026-13-45T99:99:99", "NaN",
]  # fmt: skip


def _changed(value: Any, luck: random.Random) -> Any:
    """A JSON value with something else in one place."""
    value = copy.deepcopy(value)
    if isinstance(value, dict | list) and value and luck.random() < 0.9:
        key = luck.choice(sorted(value) if isinstance(value, dict) else range(len(value)))
        if luck.random() < 0.1:
            del value[key]
        else:
            value[key] = _changed(value[key], luck)
        return value
    return luck.choice(_VALUES)


def _damaged(data: bytes, luck: random.Random) -> bytes:
    """Bytes with some changed, taken out, or put in."""
    changed = bytearray(data)
    for _ in range(luck.randrange(1, 4)):
        at = luck.randrange(len(changed) + 1)
        match luck.randrange(3):
            case 0:
                changed[at : at + 1] = luck.randbytes(1)
            case 1:
                del changed[at : at + luck.randrange(1, 200)]
            case _:
                changed[at:at] = luck.randbytes(luck.randrange(1, 64))
    return bytes(changed)


def checkpoint(luck: random.Random, folder: Path) -> None:
    """A checkpoint with changed bytes, at times under a checksum that fits: it is refused, or is the good one."""
    resealed = luck.random() < 0.5
    data = signed(_damaged(content(), luck)) if resealed else _damaged(good(), luck)
    with contextlib.suppress(checkpoint_file.UnusableError):
        checkpoint_file.from_bytes(data, 10**7)
        if not resealed and data != good():
            raise AssertionError("a damaged checkpoint was read")


def checkpoint_value(luck: random.Random, folder: Path) -> None:
    """A checkpoint whose state has another value in one place, under a right checksum: training starts again."""
    state = checkpoint_file.from_bytes(good(), 10**7)
    here: Any = state
    while True:
        key = luck.choice(sorted(here) if isinstance(here, dict) else range(len(here)))
        if not isinstance(here[key], dict | list) or not here[key] or luck.random() < 0.2:
            break
        here = here[key]
    here[key] = foreign_values.random_value(luck)
    learners, _ = started()
    if Checkpoint(Held(checkpoint_file.to_bytes(state)), KEY).load(learners, TRAINING) != 0:
        raise AssertionError(f"a checkpoint with {here[key]!r} as its {key} was trained on from")


_studies: list[Path] = []
"""Finished studies whose files get foreign values, a grid and a search; made when they are first wanted."""


def stored_value(luck: random.Random, folder: Path) -> None:
    """A value of a plan, record, journal, failure or search log is another, under a right hash; a command reads it."""
    if not _studies:
        _studies.extend(foreign_values.studies(Path(tempfile.mkdtemp(prefix="campaign.hostile."))))
    command = luck.choices(foreign_values.COMMANDS, [6 if quick else 1 for quick in _QUICK])[0]
    case = foreign_values.case(str(luck.random()), luck.choice(_studies), command)
    if not case.is_right:
        raise AssertionError(f"{case.text}\n{' '.join(case.command)}: {case.code}\n{case.output[-3000:]}")


_QUICK = [command in ("status", "plan") for command in foreign_values.COMMANDS]


SORTS: dict[str, tuple[Sort, float]] = {
    "studies": (study, 6),
    "overrides": (overrides, 4),
    "command lines": (command_line, 4),
    "results folders": (results_folder, 1),
    "checkpoints": (checkpoint, 8),
    "checkpoints with a foreign value": (checkpoint_value, 4),
    "stored files with a foreign value": (stored_value, 1),
    "alias bombs": (aliases.alias_bomb, 1),
    "module factories in studies": (factories.factory_in_a_study, 1),
    "module factories in results": (factories.factory_in_results, 0.5),
    "verbs repeated verbatim": (verbatim.repeated, 0.2),
    "full standard outputs": (full_output.full_output, 0.2),
}
"""The inputs to try, and how often each beside the others."""


def run(number: int, count: int, only: str = "") -> tuple[dict[str, int], list[str]]:
    """Try so many inputs of a seed, of the sorts with these words.

    Returns:
        How many of each sort, and what was answered wrongly, in words.
    """
    luck, tried, problems = random.Random(number), dict.fromkeys(SORTS, 0), list[str]()
    before, wanted = os.getcwd(), [name for name in SORTS if only in name]
    for place in range(count):
        name = luck.choices(wanted, [SORTS[name][1] for name in wanted])[0]
        own = random.Random(f"{number} {place}")
        with tempfile.TemporaryDirectory(prefix="campaign.hostile.") as folder:
            try:
                SORTS[name][0](own, Path(folder))
            except BaseException:
                problems.append(f"input {place} of {number} ({name}): {traceback.format_exc()[-4000:]}")
        tried[name] += 1
        os.chdir(before)
    for made in [_finished, *(place.parent for place in _studies[:1])]:
        shutil.rmtree(made, ignore_errors=True) if made is not None else None
    factories.forget()
    return tried, problems


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), " ".join(sys.argv[3:]))) + "\n")
