"""Nodes that come and go under work: how much of them is used, and two studies that want the same ones."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from ray_head import RayHead
from test_asked_nodes_drill import asked, workers

from drill_study import STUDY, Drill, Outcome, study_text
from processes import wait_for
from sweeping import end, environment, start

pytestmark = [pytest.mark.drill, pytest.mark.long]

HORIZONS = [*range(1_000_000, 3_000_000, 100_000)]


def held(head: RayHead) -> int:
    """Workers that have a slot, those whose process is starting included; -1 where a busy head did not answer."""
    try:
        actors = json.loads(head.get("/api/v0/actors?limit=1000"))["data"]["result"]["result"]
    except requests.RequestException:
        return -1
    return sum(
        actor["state"] in ("ALIVE", "PENDING_CREATION") and "Implicit" in actor["class_name"] for actor in actors
    )


def used(head: RayHead, until: Callable[[], bool]) -> tuple[float, str]:
    """The share of the nodes' slots times seconds that workers held, and the course of both; a node has one slot."""
    there = taken = 0.0
    begun = before = time.monotonic()
    course: list[str] = []
    while not until():
        time.sleep(0.5)
        slots, busy = workers(head), held(head)
        now = time.monotonic()
        if slots > 0 <= busy:
            there, taken = there + slots * (now - before), taken + min(slots, busy) * (now - before)
            course.append(f"{before - begun:.1f} to {now - begun:.1f} s: {min(slots, busy)} of {slots} slots held")
        before = now
    return taken / there, "\n".join(course)


def test_nodes_that_come_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The types of nodes promise more than ever comes, so that requests go on all the time."""
    drill = Drill.make(tmp_path / "drill", study_text(HORIZONS, "model.width: [2]"))
    drill.slow()
    never = {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 2}
    with asked(drill, most=4, never=never) as head:
        place = ["--address", head.cluster, "--results", drill.results]
        process = start("sweep", STUDY, *place, cwd=drill.folder, env=environment())
        try:
            wait_for(lambda: workers(head) > 0, process.poll)
            share, course = used(head, lambda: len(drill.store.identities()) >= 15 or process.poll() is not None)
            drill.quick()
            out, said = process.communicate(timeout=300)
        finally:
            end(process)
    with capsys.disabled():
        sys.stdout.write(f"\n{said}\n{course}\nheld in all: {share:.3f}\n")
    assert process.returncode == 0, out + said
    assert "the nodes have room for 2 packs at once now (1 before)" in said
    assert share >= 0.9


def test_two_studies_want_the_same_nodes(tmp_path: Path) -> None:
    """The second waits for what the first holds; both end, and nothing is lost or computed twice."""
    drills = [Drill.make(tmp_path / name, study_text(HORIZONS[:8], "model.width: [2]")) for name in ("one", "two")]
    with asked(drills[0]) as head:
        processes = []
        try:
            for drill in drills:
                place = ["--address", head.cluster, "--results", drill.results, f"name={drill.folder.name}"]
                processes.append(start("sweep", STUDY, *place, cwd=drill.folder, env=environment()))
            ended = [(process.communicate(timeout=900), process.returncode) for process in processes]
        finally:
            for process in processes:
                end(process)
    assert [code for _, code in ended] == [0, 0], ended
    batches = [(asked.horizon, asked.step) for asked in drills[0].asked()]  # nodes have one log for both
    assert len(batches) == 2 * len(set(batches))
    here = Drill.make(tmp_path / "here", study_text(HORIZONS[:8], "model.width: [2]"))
    for drill in drills:
        name = drill.folder.name
        alone = here.command("sweep", STUDY, "--inline", "--no-reuse", f"name={name}")
        assert alone.returncode == 0, alone.stdout + alone.stderr
        assert Outcome.of(_Stored(drill, name)).equals(Outcome.of(_Stored(here, name)))


class _Stored:
    """The results of a drill's study under another name."""

    def __init__(self, drill: Drill, name: str) -> None:
        from memsweep.sweep.store.results import Store

        self.store = Store(drill.results / name)
