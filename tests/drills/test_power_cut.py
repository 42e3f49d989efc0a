"""A power cut leaves the newest files of a study half written, empty or full of zeros; resume mends what can be mended.

Everything is killed in the middle of a sweep, and then, on one copy of its results after the other, files are damaged
at random: no round may lose a whole result, compute one again, or end with another table.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from drill_study import STEPS, STUDY, Asked, Drill, Outcome, study_text
from memsweep.cli import main
from memsweep.sweep.planning.plan_file import FILES
from memsweep.sweep.store.tables import TABLES
from tally import Tally

pytestmark = pytest.mark.drill

HORIZONS = [1000, 1100, 1200]
FEW, ROUNDS = 6, int(os.environ.get("MEMSWEEP_DRILL_ROUNDS", "24"))  # CI runs a few

Damage = Callable[[Path, random.Random], None]


def cut(path: Path, luck: random.Random) -> None:
    os.truncate(path, luck.randrange(path.stat().st_size))


def emptied(path: Path, luck: random.Random) -> None:
    os.truncate(path, 0)


def zeroed(path: Path, luck: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def end_zeroed(path: Path, luck: random.Random) -> None:
    data = path.read_bytes()
    kept = luck.randrange(len(data))
    path.write_bytes(data[:kept] + bytes(len(data) - kept))


DAMAGES: tuple[Damage, ...] = (cut, cut, emptied, zeroed, end_zeroed)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    drill = Drill.make(tmp_path_factory.mktemp("undisturbed") / "drill", study_text(HORIZONS))
    ended = drill.command("sweep", STUDY, "--inline")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Outcome.of(drill)


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Drill:
    """All processes killed with two packs of three in the middle, of which one is stored when the first ends."""
    drill = Drill.make(tmp_path_factory.mktemp("dead") / "drill", study_text(HORIZONS))
    drill.slow()
    with drill.running("sweep", STUDY) as process:
        drill.reach(process, lambda: len(drill.store.identities()) >= 3 and _last_horizon_is_far(drill))
        drill.kill_all()
    drill.quick()
    assert 3 <= len(drill.whole()) < 2 * len(HORIZONS)
    assert _newest(drill.store.folder / "checkpoints")
    return drill


def _last_horizon_is_far(drill: Drill) -> bool:
    """The pack that began last has left checkpoints."""
    last = drill.asked()[-1]
    return STEPS // 4 < last.step < 3 * STEPS // 4


def _newest(folder: Path) -> list[Path]:
    return sorted((path for path in folder.iterdir() if path.is_file()), key=lambda path: -path.stat().st_mtime_ns)


def _targets(study: Path, luck: random.Random) -> dict[str, Path]:
    """The newest file of each kind, as writers that the power left in the middle have them in their hands."""
    newest = _newest(study / "records")[luck.randrange(2)].stem
    found = {f"table {name}": study / name / f"{newest}.parquet" for name in TABLES}
    found |= {"record": study / "records" / f"{newest}.json", "plan": study / luck.choice(FILES)}
    found |= {"checkpoint": _newest(study / "checkpoints")[0], "journal": _newest(study / "journal")[0]}
    return found


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[] if n < FEW else pytest.mark.long) for n in range(ROUNDS)])
def test_files_cut_at_random_cost_only_what_they_held(
    seed: int, dead: Drill, undisturbed: Outcome, tally: Tally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    luck = random.Random(seed)
    drill = replace(dead, results=Path(shutil.copytree(dead.results, tmp_path / "results")))
    usable = len(_newest(drill.store.folder / "checkpoints"))
    targets = _targets(drill.store.folder, luck)
    broken = luck.sample(sorted(targets), luck.randint(1, len(targets)))
    for name in broken:
        luck.choice(DAMAGES)(targets[name], luck)
    before = drill.now()
    monkeypatch.setenv("MEMSWEEP_TEST_DRILL", str(drill.folder))
    assert main(["resume", STUDY, "--results", str(drill.results), "--workspace", str(drill.folder), "--inline"]) == 0
    lost, rerun = drill.cost_since(before)
    equal = Outcome.of(drill).equals(undisturbed)
    for name in broken:
        tally.record(f"power cut: {name.partition(' ')[0]} half written", 1, lost, rerun, equal)
    assert equal
    assert (lost, rerun) == (0, 0)
    assert _continued(drill.asked()[before.asked :]) >= usable - ("checkpoint" in broken)


def _continued(asked: list[Asked]) -> int:
    """How many trainings did not begin at the start."""
    firsts: dict[int, int] = {}
    for batch in asked:
        firsts.setdefault(batch.horizon, batch.step)
    return sum(first > 0 for first in firsts.values())


def test_with_both_copies_of_the_plan_gone_the_study_file_makes_it_anew(
    dead: Drill,
    undisturbed: Outcome,
    tally: Tally,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    drill = replace(dead, results=Path(shutil.copytree(dead.results, tmp_path / "results")))
    before = drill.now()
    for name in FILES:
        os.truncate(drill.store.folder / name, 100)
    places = ["--results", str(drill.results), "--workspace", str(drill.folder), "--inline"]
    monkeypatch.setenv("MEMSWEEP_TEST_DRILL", str(drill.folder))
    assert main(["resume", STUDY, *places]) in (1, 2)
    assert "Its results are not: run its study file once more (memsweep sweep STUDY)" in capsys.readouterr().err
    assert main(["sweep", STUDY, *places]) == 0
    lost, rerun = drill.cost_since(before)
    equal = Outcome.of(drill).equals(undisturbed)
    tally.record("power cut: both copies of the plan half written", 2, lost, rerun, equal)
    assert equal
    assert (lost, rerun) == (0, 0)
