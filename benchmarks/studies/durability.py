"""The cost of losing nothing: studies with and without the parts that are only there for that.

Switched off, on the other side of each pair: syncing files to the disk, the journal, the hashes in records, the lease,
checkpoints. What stays on both sides because there is no product without it: tables, records, plan. Tracking and the
report, which take their own time on both sides, are left out.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import harness
from benchmarks.harness import ROOT, Options, Row
from benchmarks.studies import noop
from memsweep.config.load.study import load_study
from memsweep.learning.state.checkpoint import Checkpoint
from memsweep.sweep.backend import Work
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.runner import run as run_plan
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.plan_file import write_plan
from memsweep.sweep.store import results
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import Journal
from memsweep.sweep.store.lease import hold_lease
from memsweep.sweep.worker.execute import execute_pack

PAIRS = 3
TRIALS = 500


@contextlib.contextmanager
def nothing_kept() -> Iterator[None]:
    """The product without what protects it."""
    off: list[tuple[Any, str, Callable[..., Any]]] = [
        (Location, "_sync", _nothing),
        (Journal, "flush", _nothing),
        (Journal, "_write", _nothing),
        (Checkpoint, "save", _nothing),
        (results, "_digest", _size_alone),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, instead in off:
            stack.enter_context(mock.patch.object(owner, name, instead))
        yield


def _nothing(*arguments: Any) -> None:
    return None


def _size_alone(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": ""}


def no_op(trials: int, *, leased: bool) -> float:
    """Seconds of a study whose trials do nothing."""
    with tempfile.TemporaryDirectory(prefix="memsweep-durability-") as folder:
        study = Path(folder) / "noop.yaml"
        study.write_text(noop.STUDY, encoding="utf-8")
        rates = [round(0.2 + 0.01 * index, 4) for index in range(trials // noop.PER_RATE)]
        return _seconds(str(study), (f"grid.task.rate={rates}",), Path(folder) / "results", leased, work=noop.no_work)


def trained(trials: int, *, leased: bool) -> float:
    """Seconds of a study of short real trials, a checkpoint after every fifth of each."""
    widths = list(range(2, 2 + max(1, trials // 60)))
    words = (
        *("training.steps=250", "training.checkpoint_every=50", "training.seeds=1", "perturbation.radii.count=8"),
        *(f"grid.model.width={widths}", f"grid.task.horizon={[20 + 2 * index for index in range(10)]}"),
    )
    with tempfile.TemporaryDirectory(prefix="memsweep-durability-") as folder:
        return _seconds("quickstart", words, Path(folder) / "results", leased)


def _seconds(study: str, words: tuple[str, ...], results: Path, leased: bool, work: Work = execute_pack) -> float:
    """From the plan's file to the last result; Ray, which would hide what is measured in its own time, is left out."""
    sweep = load_study(study, words, ROOT)
    plan = make_plan(sweep, identified(sweep), ())
    began = time.perf_counter()
    with hold_lease(Location.at(results), lambda: None) if leased else contextlib.nullcontext():
        write_plan(results / sweep.name, plan, {})
        done = run_plan(plan, workspace=ROOT, results=results, launch=Launch(inline=True), work=work)
    if len(done.finished) < len(plan.trials):
        raise RuntimeError(
            f"{len(done.finished)} of {len(plan.trials)} trials finished: {list(done.failed.values())[:1]}"
        )
    return time.perf_counter() - began


def run(options: Options) -> None:
    """Measure, print, write."""
    pairs, trials = (1, 100) if options.quick else (PAIRS, TRIALS)
    rows: list[Row] = []
    for name, study in (("no-op", no_op), ("short real trials", trained)):
        if not options.wants({"study": name}):
            continue
        kept, bare = [], []
        for _ in range(pairs):
            kept.append(study(trials, leased=True))
            with nothing_kept():
                bare.append(study(trials, leased=False))
        rows.append(
            {
                "study": name,
                "trials": trials,
                "seconds": statistics.median(kept),
                "seconds_without": statistics.median(bare),
                "ratio": statistics.median(one / other for one, other in zip(kept, bare, strict=True)),
                "ms_per_trial": 1000 * statistics.median(a - b for a, b in zip(kept, bare, strict=True)) / trials,
                "pairs": pairs,
            }
        )
        harness.table(rows[-1:])
    harness.publish("durability", {"clock": "wall", "backend": "inline"}, rows, options)
