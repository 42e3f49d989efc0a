"""Rules that go along with a sequence: the gradient of the whole of it, in memory that does not know its length."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.small_stacks import INPUTS, Endless, case, fits, flat, forward_rules, relative, unit_config
from benchmarks.stepping import Online
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


@pytest.mark.parametrize("unit", registry.names(registry.UNIT))
def test_copies_of_replicas_go_along_as_well(unit: str) -> None:
    stack = case(unit_config(unit), replicas=6, layers=2)
    copies = {name: weight.unflatten(0, (2, 3)) for name, weight in stack.weights.items()}
    online = Online(stack.model, copies, "online_snap1")
    for step, x_BI in enumerate(stack.inputs.unbind(1)):
        loss = online.step(
            x_BI, lambda outputs, step=step: stack.losses(outputs.flatten(0, 1), step).unflatten(0, (2, 3))
        )
        assert loss.shape == (2, 3)
    found, expected = online.gradient(), stack.gradient("online_snap1")
    assert all(value.shape[:2] == (2, 3) for value in found.values())
    assert relative(flat(found), flat(expected)) < 1e-10


@pytest.mark.parametrize("name", ["online_full", "online_spatial"])
def test_dropout_is_that_of_the_whole_sequence(name: str) -> None:
    """What a sequence drops, it drops at all of its steps."""
    stack = case(unit_config("lru"), replicas=2, layers=2, dropout=0.4, batch=6)
    dropped = []
    for step in (7, 8):
        stack.model.start_step([1, 2], step)
        dropped.append(stack.gradient(name))
        _, found = stack.stepped(name)
        assert relative(flat(found), flat(dropped[-1])) < 1e-10
    assert relative(flat(dropped[0]), flat(dropped[1])) > 1e-2


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


def test_what_the_models_do_elsewhere_meanwhile_does_not_matter() -> None:
    """Validation between two steps runs over sequences of its own, by backpropagation."""
    stack = case(unit_config("gru"), layers=2)
    online = stack.online("online_snap1")
    for step, x_BI in enumerate(stack.inputs.unbind(1)):
        online.step(x_BI, stack.step_loss(step))
        stack.batched("bptt")
        online.gradient()["readout_bias"].zero_()  # the caller's own
    assert relative(flat(online.gradient()), flat(stack.gradient("online_snap1"))) < 1e-10


def test_backpropagation_through_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"bptt .*whole sequence.*Rules that can: online_full,"):
        case(unit_config("lru")).online("bptt")


@pytest.mark.parametrize("shape", [(3, INPUTS), (1, INPUTS), (2, 1, INPUTS)])
def test_a_step_of_other_sequences_is_refused(shape: tuple[int, ...]) -> None:
    stack = case(unit_config("lru"), batch=2)
    online = stack.online("online_full")
    online.step(stack.inputs[:, 0], stack.step_loss(0))
    with pytest.raises(ValueError, match="the same B at all steps"):
        online.step(torch.zeros(shape, dtype=torch.float64), stack.step_loss(1))


def test_a_step_whose_loss_raises_can_be_taken_again() -> None:
    stack = case(unit_config("lru"), layers=2, pooling="running_mean")
    online = stack.online("online_full")

    def fails(outputs: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no target for this step yet")

    for step, x_BI in enumerate(stack.inputs.unbind(1)):
        with pytest.raises(RuntimeError, match="no target"):
            online.step(x_BI, fails)
        online.step(x_BI, stack.step_loss(step))
    assert relative(flat(online.gradient()), flat(stack.gradient("online_full"))) < 1e-10


@pytest.mark.parametrize("unit", ["lru", "rnn", "gru"])
@pytest.mark.parametrize(("steps", "batch", "width"), [(1, 1, 1), (1, 2, 3), (5, 1, 1)])
def test_the_smallest_sizes(unit: str, steps: int, batch: int, width: int) -> None:
    stack = case(unit_config(unit), layers=2, batch=batch, steps=steps, width=width, features=width)
    online = stack.online("online_snap1")
    for step, x_BI in enumerate(stack.inputs.unbind(1)):
        online.step(x_BI, stack.step_loss(step))
    assert relative(flat(online.gradient()), flat(stack.gradient("online_snap1"))) < 1e-10


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


@pytest.mark.parametrize(
    ("unit", "name", "steps"),
    [
        pytest.param("lru", "online_full", 10_000, marks=pytest.mark.more),
        pytest.param("gru", "online_snap1", 3_000, marks=pytest.mark.more),
        pytest.param("lru", "online_full", 100_000, marks=[pytest.mark.drill, pytest.mark.long]),
    ],
)
def test_memory_after_very_many_steps_is_that_after_a_hundred(unit: str, name: str, steps: int) -> None:
    early, late = bytes_after(unit, name, 100, steps)
    assert late == early


def test_memory_of_a_whole_sequence_grows_with_it() -> None:
    """The count sees what it must: the batched form keeps all steps."""
    short, longer = (case(unit_config("lru"), layers=2, steps=steps) for steps in (100, 400))
    peaks = [live_bytes(lambda stack=stack: stack.gradient("online_full")).peak for stack in (short, longer)]
    assert peaks[1] > 3 * peaks[0]
