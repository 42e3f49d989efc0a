"""Where a sweep runs and where its results go: the cluster of a job, folders that would be lost, the environment."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from memsweep.cli import main
from memsweep.cli.arguments import parse
from memsweep.cli.options import OPTIONS
from memsweep.studies.locations import LostResultsError, Place, join_cluster, names_folder, refuse_lost
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.job import in_job, job_name
from memsweep.sweep.ray.session import AddressError, cluster_of
from memsweep.sweep.store.filesystem import Location
from plain_shell import SECRET, clear_settings, small_workspace

JOB = json.dumps({"metadata": {"job_submission_id": "memsweep-small-1"}, "runtime_env": {}})


@pytest.fixture(autouse=True)
def _plain_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clear_settings(monkeypatch, tmp_path)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return small_workspace(tmp_path)


def test_a_job_joins_its_own_cluster_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert (in_job(), cluster_of(None), job_name()) == (False, None, "")
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", JOB)
    assert (in_job(), cluster_of(None), job_name()) == (True, "10.0.0.1:6379", "memsweep-small-1")
    assert cluster_of("auto") == "auto"
    assert cluster_of("head:6379") == "head:6379"
    monkeypatch.delenv("RAY_ADDRESS")
    assert cluster_of(None) == "auto"


@pytest.mark.parametrize("address", [f"http://me:{SECRET}@head:8265", "https://head", "ray://head:10001"])
def test_what_a_sweep_cannot_join_is_refused(address: str) -> None:
    with pytest.raises(AddressError, match="memsweep submit STUDY") as refused:
        cluster_of(address)
    assert refused.value.exit_code == 2
    assert SECRET not in str(refused.value)


def test_an_address_in_the_environment_is_told_not_obeyed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"http://me:{SECRET}@head:8265")
    assert join_cluster(Launch()).address is None
    told = capsys.readouterr().err
    assert "RAY_ADDRESS=http://head:8265 is not used" in told
    monkeypatch.delenv("RAY_ADDRESS")
    join_cluster(Launch())
    assert capsys.readouterr().err == ""


def test_a_job_refuses_a_folder_that_goes_with_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", JOB)
    before = sorted(workspace.rglob("*"))
    for words in ([], ["--results", "out"], ["--results", str(workspace / "out")]):
        assert main(["sweep", "small", "--inline", *words]) == 2
        told = capsys.readouterr().err
        assert "a folder of the job memsweep-small-1" in told
        assert "MEMSWEEP_RESULTS" in told
    assert sorted(path for path in workspace.rglob("*") if "__pycache__" not in path.parts) == before


def test_where_a_local_folder_may_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(results: str, study: str = "small", *, address: str | None = None) -> bool:
        folder = Location.at(study).parent if "/" in study else Location.at(results)
        named = names_folder(folder, results, Path(study).parent)
        try:
            refuse_lost(Place(folder, launch=Launch(address=address), named=named))
        except LostResultsError:
            return True
        return False

    monkeypatch.chdir(tmp_path)
    counts = iter([1, 3, 3])
    monkeypatch.setattr("memsweep.sweep.ray.session.count_nodes", lambda address: next(counts))
    assert not refused("results")
    assert not refused("results", address="auto")  # a cluster of one node
    assert refused("results", address="auto")  # and of three
    assert refused("results", "results/small", address="auto")
    assert not refused("/shared/results", address="auto")
    assert not refused("results", "/shared/results/small", address="auto")
    assert not refused("s3://bucket/x", address="auto")
    assert next(counts, None) is None
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", JOB)
    assert refused("results")
    assert refused("../results")
    assert refused("results", "results/small")
    assert not refused("/shared/results")
    assert not refused("results", "/shared/results/small")
    assert not refused("s3://bucket/x")


def test_results_go_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = dict.fromkeys(OPTIONS)

    def results(*words: str) -> str:
        return str(parse(words, handlers).results)

    assert results("plan", "x") == "results"
    monkeypatch.setenv("MEMSWEEP_RESULTS", "s3://bucket/results")
    assert results("plan", "x") == results("status", "x") == "s3://bucket/results"
    assert results("plan", "x", "--results", "here") == "here"
    assert os.environ["MEMSWEEP_RESULTS"] not in str(vars(parse(["submit", "x"], handlers)))
