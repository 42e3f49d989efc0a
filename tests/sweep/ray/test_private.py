"""Private names of Ray: the pinned version has them, and another one is refused in one sentence."""

from __future__ import annotations

import importlib
import inspect
import tomllib
from itertools import chain

import pytest
import ray
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from memsweep.errors import MemsweepError
from memsweep.sweep.ray import private
from paths import ROOT


def test_the_metadata_takes_the_version_whose_private_names_were_looked_at_and_no_other() -> None:
    """A later version: pin it in ``constraints.txt``, run this file and the drills, then raise TESTED and the caps."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    rays = [found for word in wanted if (found := Requirement(word)).name == "ray"]
    major, minor = map(int, private.TESTED.split("."))
    assert len(rays) == 2
    for found in rays:
        assert found.specifier == SpecifierSet(f">={private.TESTED},<{major}.{minor + 1}")


def test_private_names_are_those_of_the_installed_ray() -> None:
    assert ray.__version__.startswith(f"{private.TESTED}.")  # for another version, look at each name again
    worker = importlib.import_module("ray._private.worker")
    group = importlib.import_module("ray.air.execution.resources.placement_group")
    before = worker.print_to_stdstream, group.remove_placement_group
    with private.quiet_driver(), private.cleanup_skipped_once_dead() as skip_cleanup:
        assert worker.print_to_stdstream is not before[0]
        assert group.remove_placement_group is before[1]
        skip_cleanup()
        assert group.remove_placement_group is not before[1]
    assert (worker.print_to_stdstream, group.remove_placement_group) == before
    assert hasattr(worker, "_global_node")
    parameter = importlib.import_module("ray._private.parameter")
    default = parameter.RayParams
    assert default().dashboard_agent_listen_port  # a fixed port: where it is none, that part of lean_head can go
    with private.lean_head():
        lean = parameter.RayParams()
    assert (lean.dashboard_agent_listen_port, lean.no_monitor, lean.include_log_monitor) == (0, True, False)
    assert parameter.RayParams is default


def test_tune_counts_no_callbacks_and_so_imports_no_mlflow() -> None:
    usage, tune = (importlib.import_module(name) for name in ("ray.air._internal.usage", "ray.tune.tune"))
    before = usage.tag_callbacks
    assert "mlflow" in inspect.getsource(usage._count_callbacks)  # where it is not, callbacks_uncounted can go
    assert tune.air_usage is usage
    with private.callbacks_uncounted():
        assert tune.air_usage.tag_callbacks([object()]) is None
    assert usage.tag_callbacks is before


def test_what_keeps_a_worker_that_starts() -> None:
    tune = importlib.import_module("ray.tune.tune")
    before = tune.TuneController
    managed = importlib.import_module("ray.air.execution._internal.actor_manager").RayActorManager
    with private.workers_kept(frozenset):
        assert issubclass(tune.TuneController, before)
        # else the methods below have other names now
        assert {"_maybe_reuse_cached_actor", "_maybe_cache_trial_actor"} <= vars(before).keys()
    assert tune.TuneController is before
    assert isinstance(importlib.import_module("ray.tune.experiment").Trial.node_ip, property)
    assert callable(managed.is_actor_started)
    assert {"_resetting_trials", "_trial_to_actor"} <= set(before.__init__.__code__.co_names)


def test_placement_groups_are_of_the_job_that_ends_their_identities(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = importlib.import_module("ray._raylet")
    jobs = [ids.JobID.from_int(number) for number in (7, 8)]
    named = {
        ids.PlacementGroupID.of(job).hex(): {"state": "PENDING", "bundles": {0: bundle}}
        for job, bundle in zip(jobs, ({"CPU": 1.0}, {"node:__internal_head__": 0.001}), strict=True)
    }
    monkeypatch.setattr("ray.util.placement_group_table", lambda: named)
    groups = [private.Group(job.hex(), "PENDING", cores) for job, cores in zip(jobs, (True, False), strict=True)]
    assert [*private.placement_groups().values()] == groups


def test_a_ray_without_such_a_name_is_refused() -> None:
    with pytest.raises(MemsweepError, match=r"uses ray\._private\.worker\.no_such_name .* pip install -c constraints"):
        private._private("ray._private.worker", "no_such_name")
