"""Rules that go along with a sequence: the gradient of the whole of it, in memory that does not know its length."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.small_stacks import Endless, case, fits, flat, forward_rules, relative, unit_config
from memsweep import registry
from memsweep.learning.memory import live_bytes

STACKS: dict[str, dict[str, Any]] = {
    "prenorm": {},
    "postnorm": {"prenorm": False},
    "running mean": {"pooling": "running_mean", "readout_width": 4},
}


@pytest.mark.parametrize("fields", STACKS.values(), ids=STACKS)
@pytest.mark.parametrize("name", forward_rules())
@pytest.mark.parametrize("unit", registry.names(registry.UNIT))
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


def test_steps_without_a_target_are_remembered() -> None:
    """The loss of the last step alone, as a constant loss before it is no part of any graph."""
    stack = case(unit_config("lru"), layers=1)
    online, last = stack.online("online_full"), stack.inputs.shape[1] - 1
    for step, x_BI in enumerate(stack.inputs.unbind(1)):
        found = online.step(x_BI, stack.step_loss(step) if step == last else lambda outputs: torch.zeros(1))
    assert relative(found, stack.step_loss(last)(stack.model.outputs(stack.weights, stack.inputs)[:, :, last:])) < 1e-12
    named = {name: weight.detach().requires_grad_() for name, weight in stack.weights.items()}
    stack.step_loss(last)(stack.model.outputs(named, stack.inputs)[:, :, last:]).sum().backward()
    for name in ("nu_l0", "encoder_re_l0", "readout_weight"):
        true = named[name].grad
        assert true is not None
        assert relative(online.gradient()[name], true) < 1e-10


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


def test_memory_of_a_whole_sequence_grows_with_it() -> None:
    """The count sees what it must: the batched form keeps all steps."""
    short, longer = (case(unit_config("lru"), layers=2, steps=steps) for steps in (100, 400))
    peaks = [live_bytes(lambda stack=stack: stack.gradient("online_full")).peak for stack in (short, longer)]
    assert peaks[1] > 3 * peaks[0]
