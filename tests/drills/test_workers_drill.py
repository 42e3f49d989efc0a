"""Workers that are processes: a group that sums up gradients, and Ray Train's groups inside of a sweep."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
import workers_work

import engine
from drill_study import CHECKPOINT_EVERY, STEPS, STUDY, Asked, Drill, Outcome, kill, study_text
from memsweep.trial import RunOptions, run_pack
from processes import wait_for
from sweeping import environment

pytestmark = pytest.mark.drill

LONG = [6_000_000, 6_100_000]
"""Horizons by which the planner takes every trial's length for minutes, so that each is a pack; they are short."""


def group(folder: Path, activation: str, how: str = "whole") -> list[int]:
    """Exit statuses of the two workers of a group."""
    words = [sys.executable, str(Path(workers_work.__file__))]
    env = environment(Path(engine.__file__).parent, OMP_NUM_THREADS="1")
    both = [subprocess.Popen([*words, str(rank), str(folder), activation, how], env=env) for rank in (0, 1)]
    try:
        return [process.wait(timeout=90) for process in both]
    finally:
        for process in both:
            process.kill()
            process.wait()


def states(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*.pt"))]


def test_a_crew_has_at_every_step_the_bits_of_one_process_that_computes_all_parts(tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    (whole,) = run_pack([workers_work.config("linear")], RunOptions(shards=2, checkpoint=workers_work.Kept(alone)))
    assert group(together, "linear") == [0, 0]
    assert len(states(alone)) == workers_work.TRAINING["steps"] - 1
    assert states(together) == states(alone)  # one writer, and every step's weights are the same
    for name, table in workers_work.results(together, "linear").tables.items():
        pd.testing.assert_frame_equal(table, whole.tables[name], check_exact=True)


def test_a_crew_goes_on_from_the_checkpoint_of_its_first(tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    run_pack([workers_work.config("tanh")], RunOptions(shards=2, checkpoint=workers_work.Kept(alone)))
    assert 0 not in group(together, "tanh", "cut off")  # the second ends when the first is gone
    assert len(states(together)) == 4
    assert group(together, "tanh") == [0, 0]
    assert states(together) == states(alone)


def test_workers_that_drift_apart_all_end(tmp_path: Path) -> None:
    assert group(tmp_path, "tanh", "apart") == [0, 0]
    for rank in (0, 1):
        assert "do not hold the same weights" in (tmp_path / f"apart.{rank}").read_text()


CARDS = torch.cuda.device_count()


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("shared card", marks=pytest.mark.skipif(CARDS < 1, reason="there is no GPU")),
        pytest.param("nccl", marks=pytest.mark.skipif(CARDS < 2, reason="there are no two GPUs")),
    ],
)
def test_a_crew_on_gpus_has_the_bits_of_one_gpu_that_computes_all_parts(tmp_path: Path, how: str) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    run_pack([workers_work.config("tanh")], RunOptions(shards=2, checkpoint=workers_work.Kept(alone), device="cuda"))
    assert group(together, "tanh", how) == [0, 0]
    assert states(together) == states(alone)


def workers_at(drill: Drill, step: int) -> list[Asked]:
    """The last batch of each process that has come so far in its training."""
    return list({batch.pid: batch for batch in drill.asked() if batch.step >= step}.values())


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "horizons"), [("data", LONG), ("replicas", LONG[:1])])
def test_a_killed_worker_costs_the_time_since_the_checkpoint(
    tmp_path: Path, strategy: str, horizons: list[int]
) -> None:
    """On two slots, so that one pack's workers take all of them, and the next pack has to wait."""
    far = 4 * CHECKPOINT_EVERY
    words = ["sweep", STUDY, "resources.workers=2", f"resources.strategy={strategy}"]
    alone = Drill.make(tmp_path / "alone", study_text(horizons))
    ended = alone.command(*words, "--inline")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    drill = Drill.make(tmp_path / "drill", study_text(horizons))
    drill.slow()
    with drill.running(*words, "--ray") as process:
        wait_for(lambda: len(workers_at(drill, far)) == 2, process.poll, seconds=300.0)
        victim = workers_at(drill, far)[1]
        kill(victim.pid, signal.SIGKILL)
        drill.quick()
        out, err = process.communicate(timeout=400)
        drill.all_end()
    assert process.returncode == 0, out + err
    assert Outcome.of(drill).equals(Outcome.of(alone))
    trained = [batch for batch in drill.asked() if batch.horizon == victim.horizon]
    after = trained[1 + max(place for place, batch in enumerate(trained) if batch.pid == victim.pid) :]
    again = [batch for batch in after if batch.pid not in {other.pid for other in trained[: -len(after)]}]
    assert len({batch.pid for batch in again}) == 2
    assert min(batch.step for batch in again) >= far - CHECKPOINT_EVERY
    assert len(trained) <= 2 * (STEPS + 3 * CHECKPOINT_EVERY)
    for record in drill.store.records():
        assert len(record["provenance"]["workers"]) == 2


@pytest.mark.long
def test_what_a_worker_raises_is_the_failure_of_its_trial(tmp_path: Path) -> None:
    drill = Drill.make(tmp_path / "drill", study_text([6_000_000], "task.mood: [13]"))
    with drill.running("sweep", STUDY, "resources.workers=2", "--ray") as process:
        out, err = process.communicate(timeout=400)
    assert process.returncode == 1, out + err
    (failure,) = drill.store.failures().values()
    assert failure["error"].startswith("ZeroDivisionError: a mood of 13 (in worker ")
    assert "watched.py" in json.dumps(failure["traceback"])
    drill.all_end()
