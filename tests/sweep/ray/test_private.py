"""Private names of Ray: the pinned version has them, and another one is refused in one sentence."""

from __future__ import annotations

import importlib

import pytest
import ray

from memsweep.errors import MemsweepError
from memsweep.sweep.ray import private


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
    assert default().dashboard_agent_listen_port  # a fixed port: where it is none, free_agent_port can go
    with private.free_agent_port():
        assert parameter.RayParams().dashboard_agent_listen_port == 0
    assert parameter.RayParams is default


def test_a_ray_without_such_a_name_is_refused() -> None:
    with pytest.raises(MemsweepError, match=r"uses ray\._private\.worker\.no_such_name .* pip install -c constraints"):
        private._private("ray._private.worker", "no_such_name")
