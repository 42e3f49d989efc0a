"""Studies on a cluster whose room another one holds: they say so."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from ray_head import ray_head

from drill_study import STUDY, Drill, study_text
from paths import ROOT
from processes import wait_for
from sweeping import end, environment, start

pytestmark = [pytest.mark.drill, pytest.mark.long]


def test_studies_behind_another_say_what_they_wait_for(tmp_path: Path) -> None:
    names = ("first", "behind", "measured")
    drills = {name: Drill.make(tmp_path / name, study_text([1_000_000], "model.width: [2]")) for name in names}
    words = {"first": ["training.steps=2000"], "behind": ["resources.node_memory=0.2"], "measured": []}
    env = {"MEMSWEEP_TEST_DRILL": str(drills["first"].folder), "PYTHONPATH": str(ROOT / "platform")}
    drills["first"].slow()
    processes = {}
    with ExitStack() as stack:
        head = stack.enter_context(ray_head(cpus=1, env=env))
        for name, drill in drills.items():
            place = ["--address", head.cluster, "--results", drill.results, f"name={name}"]
            out = stack.enter_context((tmp_path / f"{name}.txt").open("w"))
            process = start("sweep", STUDY, *words[name], *place, cwd=drill.folder, env=environment(), stderr=out)
            stack.callback(end, process)
            processes[name] = process
            wait_for(drills["first"].asked, processes["first"].poll, seconds=300)
        holder = "memsweep sweep drill training.steps=2000"
        for name, sentence in (
            ("behind", "waiting behind others: the nodes have room for 1 pack, which"),
            ("measured", "packs of 1 CPU core, kind 1 of 1, at most 120 s. Others hold nodes:"),
        ):
            file = tmp_path / f"{name}.txt"
            wait_for(lambda file=file, text=f"{sentence} {holder}": text in file.read_text(), processes[name].poll)
