"""The workers of a pack go on with the next pack of the same request, and give way where others wait for them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from ray_head import ray_head

from drill_study import STUDY, Drill, Outcome, study_text
from paths import ROOT
from sweeping import end, environment, start

pytestmark = [pytest.mark.drill, pytest.mark.long]

PACKS = [60_000_000, 60_100_000, 60_200_000, 60_300_000]
"""Horizons by which the planner takes every trial's length for an hour, so that each is a pack; they are short."""
WORDS = ["sweep", STUDY, "resources.workers=2"]


def alone(folder: Path, horizons: list[int]) -> Outcome:
    """The outcome of one process."""
    drill = Drill.make(folder, study_text(horizons, "model.width: [2]"))
    ended = drill.command("sweep", STUDY, "--inline")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Outcome.of(drill)


def are_packs(drill: Drill, horizons: list[int]) -> bool:
    """Whether each of them is a pack of its own; several workers get longer packs."""
    told = drill.command("plan", *WORDS[1:], "--no-probe").stdout
    return f", pack {len(horizons)} " in told


def test_one_group_computes_all_packs_of_a_request(tmp_path: Path) -> None:
    drill = Drill.make(tmp_path / "drill", study_text(PACKS, "model.width: [2]"))
    assert are_packs(drill, PACKS)
    with drill.running(*WORDS, "--ray") as process:
        out, err = process.communicate(timeout=500)
        drill.all_end()
    assert process.returncode == 0, out + err
    workers = {horizon: {asked.pid for asked in drill.asked() if asked.horizon == horizon} for horizon in PACKS}
    assert len(set.union(*workers.values())) == 2, workers
    assert Outcome.of(drill).equals(alone(tmp_path / "alone", PACKS))


def test_two_studies_that_want_the_same_two_cores_both_end(tmp_path: Path) -> None:
    """Each wants all of them for each of its packs: a group that were kept for its own study would stop the other."""
    drill = Drill.make(tmp_path / "drill", study_text(PACKS[:2], "model.width: [2]"))
    assert are_packs(drill, PACKS[:2])
    env = {"MEMSWEEP_TEST_DRILL": str(drill.folder), "PYTHONPATH": str(ROOT / "platform")}
    with ray_head(cpus=2, env=env) as head, contextlib.ExitStack() as running:
        studies = {}
        for results in (tmp_path / "one", tmp_path / "other"):
            words = [*WORDS, "resources.node_memory=0", "--address", head.cluster, "--results", results]
            studies[results] = start(*words, cwd=drill.folder, env=environment())
            running.callback(end, studies[results])
        for process in studies.values():
            out, err = process.communicate(timeout=500)
            assert process.returncode == 0, out + err
    expected = alone(tmp_path / "alone", PACKS[:2])
    assert all(Outcome.of(Drill(drill.folder, results, drill.token)).equals(expected) for results in studies)
