"""A cluster shows a run: metrics of its driver, and names that say what a worker computes."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import requests
from ray_head import RayHead, ray_head

from drill_study import STUDY, Drill, study_text
from memsweep.sweep.driver.metrics import GAUGES
from paths import ROOT
from processes import wait_for
from sweeping import end, environment, start

pytestmark = pytest.mark.drill


def gauges(head: RayHead) -> dict[str, float]:
    """The gauges of the study, as Prometheus reads them; none where the node does not export yet."""
    try:
        found = requests.get(head.metrics, timeout=60).text
    except requests.RequestException:
        return {}
    lines = re.findall(r'^ray_(memsweep_\w+)\{[^}]*study="drill"[^}]*\} (\S+)', found, re.MULTILINE)
    return {name: float(value) for name, value in lines}


def tasks(head: RayHead) -> set[str]:
    """Names of the tasks that run."""
    found = json.loads(head.get("/api/v0/tasks?detail=true&limit=1000"))["data"]["result"]["result"]
    return {task["name"] for task in found if task["state"] == "RUNNING"}


def shown(found: dict[str, float]) -> tuple[float | None, float]:
    """Packs that run, and the trials that do not."""
    others = ("memsweep_packs_waiting", "memsweep_trials_finished")
    return found.get("memsweep_packs_running"), sum(found.get(name, math.nan) for name in others)


def test_a_cluster_shows_how_far_a_study_is(tmp_path: Path) -> None:
    drill = Drill.make(tmp_path / "drill", study_text([1_000_000, 1_100_000, 1_200_000], "model.width: [2]"))
    drill.slow()
    # a pack for each trial, of thirty seconds while it is slow: Ray exports gauges every twenty
    long = ["training.steps=300", "training.checkpoint_every=100", "training.validate_every=100"]
    env = {"MEMSWEEP_TEST_DRILL": str(drill.folder), "PYTHONPATH": str(ROOT / "platform")}
    with ray_head(cpus=1, env=env) as head:
        place = ["--address", head.cluster, "--results", drill.results]
        process = start("sweep", STUDY, *long, *place, cwd=drill.folder, env=environment())
        try:
            # Ray exports each gauge by itself: those of one moment are together once nothing moves any more
            wait_for(lambda: shown(gauges(head)) == (1, 2), process.poll)
            found = gauges(head)
            wait_for(
                lambda: any(name.startswith("drill: diagonal_rnn 2, watched 1") for name in tasks(head)), process.poll
            )
            drill.quick()
            out, said = process.communicate(timeout=300)
        finally:
            end(process)
    assert process.returncode == 0, out + said
    assert found.keys() == GAUGES.keys()
    assert found["memsweep_slots"] == 1
    assert found["memsweep_trials_total"] == 3
