"""Tasks that do harm: each ends as what it is, and no other numbers move (on real Ray: test_harmful_tasks_drills)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harmful_work import HUNGRY, RAISED, Site, healthy, job_of, poisoned, same_bits, workspace_in
from memsweep import registry
from memsweep.sweep.planning.identity import identity
from memsweep.sweep.worker.execute import PackReport, execute_pack
from memsweep.sweep.worker.failure import TIME_LIMIT
from memsweep.sweep.worker.isolation import isolated
from memsweep.sweep.worker.limits import TimeLimitError, forget_peak, memory_limit, peak_memory, time_limit
from paths import python_path


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workspace_in(tmp_path_factory.getbasetemp() / "poison")  # one for the process


@pytest.fixture
def site(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("PYTHONPATH", python_path())
    return Site(workspace, tmp_path)


def test_whatever_is_raised_is_the_failure_of_its_trial_alone(site: Site) -> None:
    others = healthy(2)
    sick = {identity(poisoned(poison, place)): poison for poison in RAISED for place in ("init", "train")}
    members = [poisoned(poison, place) for poison in RAISED for place in ("init", "train")]
    report = execute_pack(job_of(site, [others[0], *members, others[1]]), lambda *_: None)
    assert report.finished == dict.fromkeys(map(identity, others), "done")
    assert set(report.failed) == set(report.culprits) == set(sick)
    for name, failure in report.failed.items():
        hungry = sick[name] in HUNGRY
        assert failure["outcome"] == ("out_of_memory" if hungry else "failed")
        assert failure["error"].startswith(RAISED[sick[name]])
        assert len(failure["error"]) < 2_200
        assert len(failure["traceback"]) < 20_200
        assert "poisoned.py" in failure["traceback"]
        assert failure.get("asked_memory") == (2**40 if hungry else None)
        assert ("and 1.02e+03 GiB more were asked for" in failure["error"]) is hungry
    assert PackReport.from_json(report.to_json()) == report
    assert same_bits(site, others)


@pytest.mark.parametrize("place", ["property", "kernel"])
def test_a_task_may_raise_wherever_it_is_asked(site: Site, place: str) -> None:
    """In a pack of one program, too, where the engine asks before any step."""
    report = execute_pack(job_of(site, [poisoned("raise", place)]), lambda *_: None)
    ((name, failure),) = report.failed.items()
    assert (report.culprits, failure["error"]) == ((name,), RAISED["raise"])


@pytest.mark.more
@pytest.mark.parametrize("model", ["diagonal_rnn", pytest.param("vanilla_rnn", marks=pytest.mark.drill)])
def test_what_is_not_finite_is_told_and_harms_no_other(site: Site, model: str) -> None:
    part = registry.get(registry.MODEL, model).Config(width=2)
    sampled = replace(poisoned("none").perturbation, error="sampled", test_size=16)
    places = [("train", 0), ("train", 7), ("train", 19), ("validation", 0), ("test", 0)]
    sick = {
        (poison, place): poisoned(poison, *place, model=part, perturbation=sampled)
        for poison in ("nan", "inf")
        for place in places
    }
    others = [replace(config, model=part) for config in healthy(2)]
    report = execute_pack(job_of(site, [others[0], *sick.values(), others[1]]), lambda *_: None)
    assert report.failed.keys() == {identity(config) for config in sick.values()}
    for (_, (stream, index)), config in sick.items():
        failure = report.failed[identity(config)]
        assert failure["outcome"] == "failed"
        assert "DataFaultError: the task 'poisoned' gave inputs with" in failure["error"]
        assert f"in batch {index} of the stream {stream!r}" in failure["error"]
    assert [report.finished[identity(config)] for config in others] == ["done", "done"]
    assert same_bits(site, others)


@pytest.mark.more
def test_python_that_never_ends_is_ended_at_its_limit(site: Site) -> None:
    others, sick = healthy(2), poisoned("spin")
    job = job_of(site, [others[0], sick, others[1]], time_limit=6, inline=True)
    report = execute_pack(job, lambda *_: None)
    (failure,) = report.failed.values()
    assert report.culprits == (identity(sick),)
    assert (failure["outcome"], failure["cause"]) == ("failed", TIME_LIMIT)
    assert failure["error"].startswith("TimeLimitError: the time limit of this trial, 6 s, was exceeded")
    assert "resources.time_limit" in failure["error"]
    assert "in spin" in failure["traceback"]
    assert same_bits(site, others)
    assert "time limit" not in {thread.name for thread in threading.enumerate()}


_PROFILED = """
import cProfile
from memsweep.sweep.worker.limits import TimeLimitError
from memsweep.sweep.worker.limits import time_limit
try:
    with time_limit(0.05, 1, lambda error, stack: None):
        while True:
            pass
except TimeLimitError:
    cProfile.Profile().runcall(lambda: [abs(number) for number in range(9)])
"""


def test_a_time_limit_leaves_nothing_pending_in_the_interpreter() -> None:
    """Python 3.11 under a profiler runs for ever while it believes that an exception is to come."""
    own = os.environ | {"PYTHONPATH": python_path()}
    subprocess.run([sys.executable, "-c", _PROFILED], env=own, timeout=60, check=True)


@pytest.mark.more
def test_a_checkpoint_outlives_a_time_limit_and_no_fault_of_the_code(site: Site) -> None:
    for poison, kept in (("spin", True), ("raise", False)):
        often = replace(poisoned("none").training, checkpoint_every=1)
        job = job_of(site, [poisoned(poison, step=12, training=often)], time_limit=1.0)
        assert len(execute_pack(job, lambda *_: None).failed) == 1
        folder = site.store.location / "checkpoints"
        assert bool(folder.names()) is kept, poison
        folder.delete_all()


def test_a_limit_that_is_kept_leaves_no_trace() -> None:
    def hung(error: TimeLimitError, stack: str) -> None:
        raise AssertionError("nobody hangs here")

    for _ in range(20):
        with time_limit(30.0, 1, hung) as undisturbed:
            undisturbed(lambda *_: None)(0.5)
    for _ in range(20):  # at the very moment of the end: either it came or it did not
        with contextlib.suppress(TimeLimitError), time_limit(0.01, 1, hung):
            time.sleep(0.0099)
    for _ in range(20):  # and before the body begins
        with contextlib.suppress(TimeLimitError), time_limit(1e-6, 1, hung):
            pass
    time.sleep(0.05)
    assert "time limit" not in {thread.name for thread in threading.enumerate()}


def test_a_thread_that_hears_nothing_is_told_of_with_its_stack() -> None:
    told: list[tuple[str, str]] = []
    with (
        pytest.raises(TimeLimitError, match=r"3 trials that run together, 0\.3 s"),
        time_limit(0.1, 3, lambda error, stack: told.append((str(error), stack)), grace=0.1),
    ):
        time.sleep(1.0)
    ((error, stack),) = told
    assert "time.sleep(1.0)" in stack
    assert "resources.time_limit, which is 0.1 s a trial" in error


def test_the_peak_of_memory_is_measured_and_forgotten() -> None:
    block = torch.ones(2**28, dtype=torch.uint8)
    high = peak_memory()
    del block
    forget_peak()
    assert high - peak_memory() > 2**27


GREEDY = """
import numpy as np, torch
from memsweep.sweep.worker.failure import failure_of, is_memory
from memsweep.sweep.worker.limits import forget_peak, memory_limit
for ask in (
    lambda: torch.ones(2**28, dtype=torch.float64),
    lambda: np.ones(2**28),
    lambda: bytearray(2**31),
    lambda: [torch.ones(2**18) for _ in range(2**11)],
):
    with memory_limit(0.5):
        try:
            ask()
        except Exception as error:
            failure = failure_of(error)
            assert is_memory(error), failure
            assert failure["peak_memory"] < 2**30, failure
        else:
            raise SystemExit("it got what it asked for")
    assert len(bytearray(2**30)) == 2**30  # there is no limit now
    forget_peak()
print("kept")
"""


@pytest.mark.drill
def test_a_limit_of_memory_is_met_by_an_error_of_the_one_who_asks(site: Site) -> None:
    ended = subprocess.run([sys.executable, "-c", GREEDY], capture_output=True, text=True, timeout=600, check=False)
    assert (ended.stdout, ended.returncode) == ("kept\n", 0), ended.stderr
    with memory_limit(0.0):
        assert torch.ones(2**27).sum() == 2**27


def test_a_process_is_what_it_was_after_a_trial_that_changed_everything(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(site.results)
    before = _settings()
    for poison in ("change", "leave changed", "no folder", "closed"):
        sick = poisoned(poison)
        with contextlib.suppress(ValueError), isolated():
            registry.get(registry.TASK, "poisoned")(replace(sick.task, place="init"))
        assert _settings() == before, poison
        os.fstat(1)
        os.fstat(2)


def test_ways_to_compute_are_chosen_by_no_trial_before() -> None:
    backends = torch.backends
    ways: list[tuple[Callable[[], bool], Callable[[bool], object]]] = [
        (backends.mha.get_fastpath_enabled, backends.mha.set_fastpath_enabled),
        (backends.cuda.flash_sdp_enabled, backends.cuda.enable_flash_sdp),
        (backends.cuda.mem_efficient_sdp_enabled, backends.cuda.enable_mem_efficient_sdp),
        (backends.cuda.math_sdp_enabled, backends.cuda.enable_math_sdp),
        (backends.cuda.cudnn_sdp_enabled, backends.cuda.enable_cudnn_sdp),
        (lambda: torch.is_autocast_enabled("cuda"), lambda on: torch.set_autocast_enabled("cuda", on)),
        (lambda: backends.mkldnn.enabled, lambda on: setattr(backends.mkldnn, "enabled", on)),
        (lambda: backends.cudnn.benchmark, lambda on: setattr(backends.cudnn, "benchmark", on)),
        (lambda: backends.cudnn.deterministic, lambda on: setattr(backends.cudnn, "deterministic", on)),
    ]
    before = [get() for get, _ in ways]
    with isolated():
        for (_, put), value in zip(ways, before, strict=True):
            put(not value)
        assert [get() for get, _ in ways] == [not value for value in before]
    assert [get() for get, _ in ways] == before


def _settings() -> dict[str, Any]:
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "made on": torch.zeros(1).device.type,
        "torch": torch.get_rng_state().tolist(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "grad": torch.is_grad_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "denormal": float(torch.full((1,), 1e-310, dtype=torch.float64) / 2.0),
        "numpy": repr(np.random.get_state()),
        "errors": np.geterr(),
        "filters": list(warnings.filters),
        "recursion": sys.getrecursionlimit(),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "streams": (sys.stdout, sys.stderr),
    }
