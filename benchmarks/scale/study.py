"""A study of very many trials that do nothing, through everything that a cluster has: Ray, S3, PostgreSQL, MLflow.

What ``memsweep sweep`` does, step by step with a stopwatch, the memory and the CPU time of the driver's threads; then
what one waits for who opens the stored study again.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Row
from benchmarks.scale.proc import resident, thread_cpu, tree_cpu
from benchmarks.studies import noop
from benchmarks.studies.stages import Stages
from benchmarks.studies.whole import _memory
from memsweep import report
from memsweep.config.load.study import load_study
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.progress import Snapshot
from memsweep.sweep.driver.runner import run
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.plan_file import write_plan
from memsweep.sweep.planning.reuse import find_reusable
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.results import Store
from memsweep.sweep.tracking import Tracker
from memsweep.sweep.tracking.uri import tracking_uri

_SAMPLE_SECONDS = 0.5


def study_of(trials: int, folder: Path) -> tuple[str, tuple[str, ...]]:
    """The file of a study of so many trials (a multiple of ``noop.PER_RATE``), and its overrides."""
    file = folder / f"scale{trials}.yaml"
    file.write_text(noop.STUDY, encoding="utf-8")
    rates = [round(0.2 + 0.01 * index, 4) for index in range(trials // noop.PER_RATE)]
    return str(file), (f"grid.task.rate={json.dumps(rates)}",)


@dataclass
class _Curve:
    """Trials finished and mirrored, and the driver's memory, by time."""

    tracker: Tracker | None
    log: Path
    began: float = field(default_factory=time.perf_counter)
    finished: int = 0
    delivered: int = 0
    points: list[tuple[float, int, int, int, float]] = field(default_factory=list)

    def update(self, snapshot: Snapshot) -> None:
        self.finished = snapshot.finished

    def note(self) -> None:
        mirrored = max(self.delivered - self.tracker.waiting, 0) if self.tracker else 0
        point = (time.perf_counter() - self.began, self.finished, self.delivered, mirrored, resident())
        self.points.append(point)
        with self.log.open("a", encoding="utf-8") as log:  # a run of many minutes may be cut short
            log.write(json.dumps(point) + "\n")

    @contextlib.contextmanager
    def sampled(self) -> Iterator[None]:
        """Points as long as the body runs."""
        over = threading.Event()

        def sample() -> None:
            while not over.wait(_SAMPLE_SECONDS):
                self.note()

        thread = threading.Thread(target=sample, name="samples")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.note()


def sweep(trials: int, results: str, folder: str, servers: dict[str, tuple[int, ...]], *, mirrored: bool = True) -> Row:
    """Run a study of so many trials into an empty results folder or bucket.

    Args:
        trials: a multiple of ``noop.PER_RATE``.
        results: the folder or URI.
        folder: for the study's file.
        servers: name -> processes whose CPU time is noted.
        mirrored: to MLflow.
    """
    watch = Stages()
    study, overrides = study_of(trials, Path(folder))
    config = load_study(study, overrides, ROOT)
    watch.ended("configs")
    rows = identified(config)
    watch.ended("identities")
    plan = make_plan(config, rows, set())
    watch.ended("packs")
    place = Location.at(results)
    store = Store(place / folder_name(config.name))
    tracking: dict[str, Any] = {"params": {"trials": trials}, "tags": {}}
    write_plan(store.location, plan, {}, tracking)
    watch.ended("plan_file")
    tracker = Tracker(tracking_uri(None, place), place, config.name, **tracking) if mirrored else None
    watch.ended("tracker")
    curve = _Curve(tracker, Path(folder) / f"points{trials}.jsonl")
    used = {name: sum(map(tree_cpu, pids)) for name, pids in servers.items()}

    def on_result(identity: str) -> None:
        if tracker is not None:
            tracker.log_stored([identity])
        curve.delivered += 1

    before = resident()
    with curve.sampled():
        done = run(
            plan, workspace=ROOT, results=place, launch=Launch(), on_progress=curve.update, on_result=on_result,
            work=noop.no_work,
        )  # fmt: skip
        watch.ended("run")
        after, behind, threads = resident(), tracker.waiting if tracker else 0, thread_cpu()
        complaint = tracker.finish("done", patience=7200.0) if tracker else ""
        watch.ended("mirror")
    if complaint or done.failed or len(done.finished) < trials:
        failures = [failure["error"] for failure in done.failed.values()]
        raise RuntimeError(f"{len(done.finished)} of {trials} trials finished. {complaint} {failures[:1]}")
    ended = next(seconds for seconds, finished, *_ in curve.points if finished == trials)
    return {
        "trials": trials,
        "packs": len(plan.packs),
        "place": "S3" if results.startswith("s3:") else "disk",
        **{f"{name}_s": seconds for name, seconds in watch.seconds.items()},
        "all_finished_s": ended,
        "behind": behind,
        "run_memory_mib": after - before,
        "peak_memory_mib": _memory(),
        "main_cpu_s": threads.get("MainThread", 0.0),
        "delivery_cpu_s": sum(seconds for name, seconds in threads.items() if name.startswith("results")),
        "mirror_cpu_s": threads.get("memsweep-tracking", 0.0),
        **{f"{name}_cpu_s": sum(map(tree_cpu, pids)) - used[name] for name, pids in servers.items()},
        "worker_phases": done.profile.seconds,
        **_sizes(store.location),
        "points": curve.points,
    }


def _sizes(place: Location) -> Row:
    journal = place.names("journal")
    return {
        "journal_mb": sum(journal.values()) / 1e6,
        "journal_segments": len(journal),
        "plan_mb": place.names()["plan.json"] / 1e6,
    }


def opened(trials: int, results: str, folder: str) -> Row:
    """The wait of a reader who comes back to the stored study: seconds of each step, all in this process."""
    study, overrides = study_of(trials, Path(folder))
    rows = identified(load_study(study, overrides, ROOT))
    place = Location.at(results)
    store = Store(place / f"scale{trials}")
    row: Row = {"trials": trials, "place": "S3" if results.startswith("s3:") else "disk"}
    row["listing_s"] = _timed(store.identities)
    row["checking_s"] = _timed(lambda: find_reusable(rows, store, place))
    common = ["--results", results, "--workspace", str(ROOT)]
    row["status_s"] = _timed(lambda: command(["status", f"scale{trials}", "--results", results]))
    row["plan_s"] = _timed(lambda: command(["plan", study, *overrides, *common]))
    row["resume_s"] = _timed(lambda: command(["resume", f"scale{trials}", *common]))
    return row


def reported(trials: int, results: str) -> Row:
    """The report alone: seconds and the largest memory of this process."""
    row: Row = {"trials": trials, "place": "S3" if results.startswith("s3:") else "disk"}
    row["report_s"] = _timed(lambda: report.build(Location.at(results) / f"scale{trials}"))
    return row | {"report_memory_mib": _memory()}


def command(words: list[str]) -> None:
    from memsweep.cli import main

    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        code = main(words)
    if code:
        raise RuntimeError(f"memsweep {' '.join(words)} ended with {code}: {shown.getvalue()[-1000:]}")


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def unmirrored(trials: int, results: str, folder: str) -> Row:
    """``sweep`` without MLflow."""
    return sweep(trials, results, folder, {}, mirrored=False)


def track_to(uri: str) -> None:
    """Track to this server from here on."""
    os.environ["MLFLOW_TRACKING_URI"] = uri
