"""Units whose recurrence is given: loops over time of the papers' equations, the windows that an LMU describes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from scipy.special import eval_sh_legendre
from torch import Tensor

from memsweep import registry
from memsweep.config.schema.training import GroupConfig, GroupsConfig, TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, TrialConfig
from memsweep.models.deep.fixed.echo_state import EchoStateUnit
from memsweep.models.deep.fixed.lmu import LMUUnit, delay_system
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.models.deep.unit import Unit
from memsweep.testing import UnitSuite
from memsweep.trial import train_replicas

registry.discover()

TestLMU = type("TestLMU", (UnitSuite,), {"unit": "lmu", "config": LMUUnit.Config(order=4, window=7.0)})
TestEcho = type("TestEcho", (UnitSuite,), {"unit": "echo_state", "config": EchoStateUnit.Config(leak=0.3)})
del UnitSuite  # pytest would collect the bare suite too

FROZEN = GroupsConfig(
    recurrent=GroupConfig(factor=0.0, weight_decay=0.0), input=GroupConfig(factor=0.0, weight_decay=0.0)
)


def legendre(unit: LMUUnit, weights: dict[str, Tensor], x_TF: Tensor) -> Tensor:
    """Step by step with the published A and B, and scipy's matrix exponential."""
    order, window = unit.config.order, unit.config.window
    flow = np.array(
        [
            [(2 * i + 1) / window * (-1.0 if i < j else (-1.0) ** (i - j + 1)) for j in range(order)]
            for i in range(order)
        ]
    )
    given = np.array([(2 * i + 1) / window * (-1.0) ** i for i in range(order)])
    matrix = scipy.linalg.expm(flow)
    held = np.linalg.solve(flow, (matrix - np.eye(order)) @ given)
    memory, answers = torch.zeros(unit.width // order, order, dtype=torch.float64), []
    for x_F in x_TF:
        memory = memory @ torch.from_numpy(matrix).mT + (weights["encoder"] @ x_F)[:, None] * torch.from_numpy(held)
        answers.append(weights["readout"] @ memory.flatten() + weights["skip"] * x_F)
    return torch.stack(answers)


def reservoir(unit: EchoStateUnit, weights: dict[str, Tensor], x_TF: Tensor) -> Tensor:
    """Step by step, as published."""
    leak, state, answers = unit.config.leak, torch.zeros(unit.width, dtype=torch.float64), []
    for x_F in x_TF:
        drive = weights["matrix"] @ state + weights["encoder"] @ x_F + weights["bias"]
        state = (1.0 - leak) * state + leak * torch.tanh(drive)
        answers.append(weights["readout"] @ state + weights["skip"] * x_F)
    return torch.stack(answers)


@pytest.mark.parametrize(
    ("unit", "loop"),
    [
        (LMUUnit(LMUUnit.Config(order=3, window=11.5), 6, 4), legendre),
        (EchoStateUnit(EchoStateUnit.Config(leak=0.4, density=0.6), 6, 4), reservoir),
        (EchoStateUnit(EchoStateUnit.Config(), 6, 4), reservoir),
    ],
    ids=["lmu", "leaky", "echo_state"],
)
def test_a_unit_is_its_papers_loop_with_all_gradients(unit: Unit, loop: Any) -> None:
    noise, steps = torch.Generator().manual_seed(2), 75  # more than two pieces
    initial = unit.initial(steps, np.random.default_rng(1))
    weights = {
        name: torch.stack([torch.from_numpy(value), 0.8 * torch.from_numpy(value)]).requires_grad_()
        for name, value in initial.items()
    }
    x_NBTF = torch.randn(2, 3, steps, 4, dtype=torch.float64, generator=noise).requires_grad_()
    found = unit.run(weights, x_NBTF)
    expected = torch.stack(
        [
            torch.stack([loop(unit, {name: value[n] for name, value in weights.items()}, x) for x in x_NBTF[n]])
            for n in range(2)
        ]
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    outer = torch.randn(found.shape, dtype=torch.float64, generator=noise)
    both = [torch.autograd.grad(answers, [*weights.values(), x_NBTF], outer) for answers in (found, expected)]
    for ours, theirs in zip(*both, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_an_lmu_holds_the_window_of_a_slow_signal() -> None:
    """Equation 3: u(t - r) is the sum of m_i P_i(r / theta), by shifted Legendre polynomials."""
    order, window, steps = 8, 60.0, 400
    matrix, given = delay_system(order, window)
    signal, memory = np.sin(2.0 * np.pi * np.arange(steps) / 90.0), np.zeros(order)
    for number in signal:
        memory = matrix @ memory + given * number
    for back in (0.0, 15.0, 30.0, 45.0, 60.0):
        decoded = sum(memory[i] * eval_sh_legendre(i, back / window) for i in range(order))
        # held for a step each, a signal is half a step old
        assert abs(decoded - np.sin(2.0 * np.pi * (steps - 1 - back + 0.5) / 90.0)) < 0.02


def test_a_reservoir_has_its_radius_and_density() -> None:
    config = EchoStateUnit.Config(radius=0.7, density=0.2)
    matrix = EchoStateUnit(config, 200, 3).initial(10, np.random.default_rng(0))["matrix"]
    assert abs(np.abs(np.linalg.eigvals(matrix)).max() - 0.7) < 1e-10
    assert 0.18 < (matrix != 0.0).mean() < 0.22


def test_training_leaves_a_reservoir_as_it_was_drawn() -> None:
    """Its readout learns; a study that would train the reservoir is refused with the settings that freeze it."""
    trial = TrialConfig(
        task=registry.get(registry.TASK, "copying_memory").Config(delay=6, length=3),
        model=ResidualStack.Config(unit=EchoStateUnit.Config()),
        training=TrainingConfig(steps=20, seeds=1, batch_size=4, weight_decay=0.1, validate_every=20),
        perturbation=PerturbationConfig(balls=()),
    )
    (problem,) = trial.problems()
    assert "training would change the reservoir" in problem
    frozen = replace(trial, training=replace(trial.training, groups=FROZEN))
    assert not [*frozen.problems()]
    weights = []
    for steps in (1, 20):
        config = replace(frozen, training=replace(frozen.training, steps=steps, validate_every=steps))
        ((_, _, pack),) = train_replicas([config]).ensembles
        weights.append(pack.ensemble.layout.named(pack.weights))
    before, after = weights
    for name in ("matrix_l0", "encoder_l0", "bias_l0"):
        assert torch.equal(before[name], after[name])
    assert not torch.equal(before["readout_l0"], after["readout_l0"])


def test_a_width_that_is_no_multiple_of_the_order_is_refused() -> None:
    (found,) = ResidualStack.Config(unit=LMUUnit.Config(order=4), width=6).problems()
    assert "let width be a multiple of 4" in found
