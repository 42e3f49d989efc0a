"""Where a study runs if nobody says where: short studies of memsweep's own code in this process, all others on Ray."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import memsweep as ms
from drill_study import TASK
from memsweep import registry
from memsweep.config.load.study import load_study
from memsweep.sweep import job
from memsweep.sweep.driver.placement import SHORT_SECONDS, Placement, placement
from memsweep.sweep.estimate.estimate import modelled_work, waves
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.resources import local_cpus
from memsweep.sweep.store.results import Store
from paths import ROOT
from sweeping import BASE, memsweep, sweep

SEARCH = "search: {training.learning_rate: {log_uniform: [1e-3, 1e-1]}, trials: 4, batch: 2}\n"
ASHA = SEARCH.replace("batch: 2", "batch: 2, scheduler: {name: asha, grace: 10}")


@pytest.fixture
def placed(tmp_path: Path) -> Callable[..., Placement]:
    def placed(text: str, *words: str) -> Placement:
        file = tmp_path / "study.yaml"
        file.write_text(text)
        study = load_study(str(file), words, ROOT)
        packs = () if study.search else make_plan(study, identified(study), ()).packs
        return placement(study, waves(study, packs))

    return placed


def test_a_short_study_of_our_own_code_runs_in_this_process(placed: Callable[..., Placement]) -> None:
    assert placed(BASE).inline
    assert placed(BASE + SEARCH).inline
    assert "--ray" in placed(BASE).text


@pytest.mark.parametrize(
    ("more", "words", "why"),
    [
        ("", ("resources.cpus=0.5",), "the study sets resources"),
        ("", ("resources.time_limit=60",), "the study sets resources"),
        ("", ("training.steps=1000000",), "of work"),
        (ASHA, (), "the scheduler asha is Ray's"),
        ("", ("model={name:stable_ssm,layers:2,width:2}",), "does not know how long such models take (stable_ssm)"),
    ],
)
def test_what_asks_for_ray_gets_it(
    placed: Callable[..., Placement], more: str, words: tuple[str, ...], why: str
) -> None:
    found = placed(BASE + more, *words)
    assert not found.inline
    assert why in found.text
    assert ("--inline" in found.text) == (why != "of work")


@pytest.mark.parametrize("name", ["RAY_ADDRESS", job._JOB])
def test_a_cluster_that_the_environment_names_keeps_ray(
    placed: Callable[..., Placement], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "{}")
    assert placed(BASE).text.startswith("runs on Ray: the environment names a cluster")


def test_what_is_left_decides(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(BASE + "grid: {training.steps: [20, 1000000]}\n")
    study = load_study(str(file), (), ROOT)
    trials = identified(study)
    short, long = trials
    assert not placement(study, waves(study, make_plan(study, trials, {short.identity}).packs)).inline
    left = waves(study, make_plan(study, trials, {long.identity}).packs)
    assert modelled_work(left) < SHORT_SECONDS
    assert placement(study, left).inline


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("task: {name: of_a_user, horizon: 800000}", "of_a_user"),
        ("model: {name: module, factory: 'min_gru:MinGRU', width: 2}", "MinGRU"),
    ],
)
def test_code_of_others_gets_a_process_of_its_own(tmp_path: Path, part: str, name: str) -> None:
    (tmp_path / "tasks").mkdir()
    if name == "of_a_user":
        (tmp_path / "tasks" / "of_a_user.py").write_text(TASK.replace("watched", name))
    shutil.copy(ROOT / "tests" / "support" / "nets" / "min_gru.py", tmp_path)
    kind = part.partition(":")[0]
    lines = [part if line.startswith(kind) else line for line in BASE.splitlines()]
    (tmp_path / "study.yaml").write_text("\n".join(lines))
    try:
        found = ms.plan(tmp_path / "study.yaml", results=tmp_path / "results", workspace=tmp_path).placement
    finally:  # other tests of this process take every registered task
        registry._parts[registry.TASK].pop("of_a_user", None)
    assert found is not None
    assert found.text.startswith(f"runs on Ray: the code of {name} is not memsweep's own")


@pytest.mark.more
def test_plan_and_sweep_choose_alike_and_the_numbers_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(BASE)

    def document(*words: str) -> dict[str, Any]:
        ended = memsweep(*words, "study.yaml", "--json", "--results", results, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        document: dict[str, Any] = json.loads(ended.stdout)
        return document | {"told": ended.stderr}

    results = tmp_path / "results"
    planned, swept = document("plan", "--no-probe"), document("sweep")
    assert (planned["inline"], swept["inline"]) == (True, True)
    assert swept["told"].count("runs in this process: about") == 1
    again = document("plan", "--no-probe")
    assert again["inline"] is None  # nothing is left

    results = tmp_path / "on_ray"
    on_ray = document("sweep", "--ray")
    assert on_ray["inline"] is False
    assert "runs in this process" not in on_ray["told"]
    (one,), (other,) = swept["finished"], on_ray["finished"]
    assert one == other
    here, there = (Store(tmp_path / place / "study").tables(one) for place in ("results", "on_ray"))
    assert here.keys() == there.keys()
    for table in here:
        pd.testing.assert_frame_equal(here[table], there[table], check_exact=True)


@pytest.mark.parametrize("strategy", ["data", "replicas"])
def test_the_parts_of_more_workers_than_cores_are_computed_one_after_the_other(tmp_path: Path, strategy: str) -> None:
    study, workers = tmp_path / "study.yaml", 2 * local_cpus()
    study.write_text(BASE)
    words = ["--inline", f"resources.workers={workers}", f"resources.strategy={strategy}"]
    assert sweep(study, tmp_path / strategy, *words) == 0
    (record,) = Store(tmp_path / strategy / "study").records()
    assert record["outcome"] == "done"
