"""Failures are grouped by cause, with the settings they share and the line of the user's own code."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memsweep.errors import BrokenChainError
from memsweep.report.read.failures import failure_groups, failure_lines, failure_sentence
from memsweep.sweep.planning.chain_values import never_reached
from memsweep.sweep.store.record import failure_json, read_failure
from memsweep.sweep.worker.failure import failure_of

CODE = """
import json

def scale(states):
    return states.scale_of_states

def too_long(steps):
    raise RuntimeError(f"no more than 31 steps, got {steps}")

def inside_a_library(text):
    return json.loads(text)

def twice(steps):
    try:
        too_long(steps)
    except RuntimeError as error:
        raise ValueError("the net failed") from error
"""


def rows(horizons: tuple[int, ...] = (8, 16, 24, 32), widths: tuple[int, ...] = (2, 4, 8, 16)) -> dict[str, Any]:
    """A grid of configs by identity."""
    return {
        f"{horizon:016x}{width:016x}": {
            "task": {"name": "t", "horizon": horizon},
            "model": {"name": "m", "width": width},
        }
        for horizon in horizons
        for width in widths
    }


@pytest.fixture
def net(tmp_path: Path) -> dict[str, Any]:
    """The functions of a user's file; ``__file__`` is its path."""
    file = tmp_path / "my_nets.py"
    file.write_text(CODE)
    return runpy.run_path(str(file))


def stored(net: Mapping[str, Any], function: str, value: Any) -> dict[str, Any]:
    """The failure of a call of the user's code, as it comes out of the store."""
    with pytest.raises(Exception) as error:  # noqa: PT011
        net[function](value)
    content = failure_json({"identity": "i", "study": "s", **failure_of(error.value)})
    return dict(read_failure(content, "a file"))


def test_two_causes_are_told_with_their_counts_settings_and_lines(net: Mapping[str, Any]) -> None:
    plan = rows()
    failures = {
        name: stored(net, "too_long", 32) if config["task"]["horizon"] == 32 else stored(net, "scale", 1.0)
        for name, config in plan.items()
    }
    first, second = failure_groups(plan, failures)
    assert (first.count, first.kind, first.place, first.settings) == (12, "AttributeError", "my_nets.py:5", {})
    assert (second.count, second.place, second.settings) == (4, "my_nets.py:8", {"task.horizon": (32,)})
    assert (second.file, second.code) == (net["__file__"], 'raise RuntimeError(f"no more than 31 steps, got {steps}")')
    assert {*first.identities, *second.identities} == {*plan}
    assert failure_sentence((first, second)) == (
        "All 16 trials failed: 12 AttributeError at my_nets.py:5 ('float' object has no attribute 'scale_of_states'), "
        "4 (task.horizon=32) RuntimeError at my_nets.py:8 (no more than 31 steps, got 32)."
    )


def test_one_cause_with_other_numbers_is_one_cause(net: Mapping[str, Any]) -> None:
    plan = rows((16, 32), (2,))
    (group,) = failure_groups(plan, {name: stored(net, "too_long", n) for n, name in enumerate(plan, 90)})
    assert failure_sentence([group]) == (
        "All 2 trials failed: RuntimeError at my_nets.py:8: for example, no more than 31 steps, got 90."
    )
    (same,) = failure_groups(plan, {name: stored(net, "too_long", 90) for name in plan})
    assert failure_sentence([same]).endswith("my_nets.py:8: no more than 31 steps, got 90.")


def test_some_fail_by_one_setting(net: Mapping[str, Any]) -> None:
    plan = rows()
    failed = {name: stored(net, "too_long", 1) for name, row in plan.items() if row["task"]["horizon"] > 16}
    groups = failure_groups(plan, failed)
    assert groups[0].where == "task.horizon=24,32"
    assert failure_sentence(groups).startswith("8 of 16 trials failed (task.horizon=24,32): RuntimeError at my_nets")
    one = failure_groups(plan, dict([failed.popitem()]))
    assert one[0].settings == {"task.horizon": (32,), "model.width": (16,)}


def test_the_line_is_the_users_where_a_library_or_another_error_raised(net: Mapping[str, Any]) -> None:
    plan = rows((8,), (2, 4))
    one, other = plan
    groups = failure_groups(plan, {one: stored(net, "inside_a_library", "{"), other: stored(net, "twice", 3)})
    assert [group.place for group in groups] == ["my_nets.py:11", "my_nets.py:17"]


@pytest.mark.parametrize("traceback", ["", "Traceback (most recent call last):\n  (cut)", "<frozen>"])
def test_a_failure_without_a_line_stays_readable(traceback: str) -> None:
    """As old ones have it, and workers that died."""
    plan = rows((8,), (2,))
    died = {"outcome": "failed", "error": "WorkerCrashedError: the worker died", "traceback": traceback}
    groups = failure_groups(plan, dict.fromkeys(plan, died))
    assert (groups[0].place, groups[0].line) == ("", 0)
    assert failure_lines(groups)[0] == "The trial failed: WorkerCrashedError: the worker died."


def test_memory_is_a_cause_of_its_own() -> None:
    plan = rows((8, 16), (2,))
    lacking = failure_of(MemoryError("no more"))
    (group,) = failure_groups(plan, {[*plan][1]: lacking})
    assert group.kind == "out of memory"
    assert "Lower training.batch_size or task.horizon" in "\n".join(failure_lines([group]))


def test_a_trial_is_told_by_its_settings_and_never_by_its_hash() -> None:
    plan = rows((8, 16, 24), (2,))
    first, *others = plan
    said = failure_sentence(failure_groups(plan, {name: never_reached(first) for name in others}))
    assert BrokenChainError.__name__ in said
    assert "the chain broke at the trial task.horizon=8" in said
    assert not [name for name in plan if name in said]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ValueError: the kind of of is unknown", "the kind of of is unknown"),
        ("ValueError: the weights of {first}", "the weights of task.horizon=8"),
        ("ValueError: the weights of {other}", "the weights of this study"),
        ("ValueError: the weights {other}", "the weights of this study"),
    ],
)
def test_a_text_keeps_its_words_where_a_trial_is_told(error: str, said: str) -> None:
    plan = rows((8, 16), (2,))
    failed = {"outcome": "failed", "error": error.format(first=next(iter(plan)), other="f" * 32), "traceback": ""}
    assert failure_groups(plan, {[*plan][1]: failed})[0].said == said


def test_nothing_failed() -> None:
    assert failure_groups(rows(), {}) == ()
    assert (failure_sentence(()), failure_lines(())) == ("", [])
    assert failure_groups(rows(), {"f" * 32: never_reached("a")}) == ()
