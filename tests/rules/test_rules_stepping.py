"""Rules that go along with a sequence: the gradient of the whole of it, in memory that does not know its length."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.rules.small_stacks import Endless, case, fits, flat, forward_rules, relative, unit_config
from memsweep.rules.base import online_units

STACKS: dict[str, dict[str, Any]] = {
    "prenorm": {},
    "postnorm": {"prenorm": False},
    "running mean": {"pooling": "running_mean", "readout_width": 4},
}


@pytest.mark.parametrize("fields", STACKS.values(), ids=STACKS)
@pytest.mark.parametrize("name", forward_rules())
@pytest.mark.parametrize("unit", online_units())
def test_steps_add_up_to_the_gradient_of_the_whole_sequence(unit: str, name: str, fields: dict[str, Any]) -> None:
    stack = case(unit_config(unit), replicas=2, layers=2, **fields)
    if not fits(name, stack.model.config):
        with pytest.raises(ValueError, match=f"the rule {name} cannot learn step by step here: "):
            stack.online(name)
        return
    loss, _, expected = stack.batched(name)
    summed, found = stack.stepped(name)
    assert relative(summed, loss) < 1e-12
    assert relative(flat(found), flat(expected)) < 1e-10


def bytes_after(unit: str, name: str, *counts: int) -> list[tuple[int, ...]]:
    """Held after each of three steps from each of these counts on, and the most during them."""
    small = {"width": 2, "features": 2, "mixing": "none", "norm": "none", "pooling": "running_mean"}
    models, found = Endless(case(unit_config(unit), batch=1, **small), name), []
    for steps in counts:
        models.go(steps - models.steps)
        found.append(models.bytes())
    return found


def test_memory_does_not_know_how_long_the_sequence_is() -> None:
    early, late = bytes_after("lru", "online_full", 100, 300)
    assert late == early
    assert early[0] == early[1] == early[2]
