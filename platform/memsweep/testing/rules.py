"""The contract of every learning rule: its gradient is the one that it declares, and nothing else of a model changes.

Letters: see memsweep.models.deep.unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.config.schema.trial import TrialConfig
from memsweep.learning.ensemble.replicas import Replica, build
from memsweep.learning.loss.batch_sharding import ONE_SHARD
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.training.learner import Learner
from memsweep.models.base import Signature
from memsweep.models.deep.unit import OnlineUnit, before
from memsweep.rules.base import Rule, online_units
from memsweep.rules.batched import Batched
from memsweep.streams import TRAIN, Stream
from memsweep.testing.checks import equal, finite, same
from memsweep.testing.units import OnlineUnitSuite, some
from memsweep.trial import run_pack

MODEL = "residual_stack"
STEP = 1e-6
"""Of central differences, whose error is some 1e-10 of values of size 1."""


class RuleSuite:
    """Inherit and set ``rule``; it is tested on the unit in ``unit``, or on the first one that it can train.

    Attributes:
        rule: registered name.
        unit: registered name of a unit; empty: the first one of those that the rule does not refuse.
        study: sections of the trial in which it trains a stack of two layers.
    """

    rule: str
    unit: str = ""
    study: dict[str, Any] = {  # noqa: RUF012  (a test class is made once)
        "task": {"name": "linear_functional", "kernel": "exponential", "horizon": 7},
        "model": {"name": MODEL, "width": 3, "features": 3, "layers": 2, "norm": "none"},
        "training": {"seeds": 2, "steps": 2, "batch_size": 5, "validation_size": 6, "micro_batch": 5},
        "perturbation": {"balls": [], "test_size": 6},
    }

    def part(self) -> type[Rule]:
        registry.discover()  # the tasks and units of the trial
        part: type[Rule] = registry.get(registry.RULE, self.rule)
        return part

    def fitting(self) -> list[str]:
        """The names of the units that it can train."""
        self.part()
        return [name for name in online_units() if self.part().refusal(*_stack_of(name)) is None]

    def trained_unit(self) -> str:
        fitting = self.fitting()
        assert fitting, f"{self.rule} refuses every unit: {', '.join(online_units())}"
        return self.unit or fitting[0]

    def trial(self, rule: str) -> TrialConfig:
        model = {**self.study["model"], "unit": self.trained_unit()}
        data = {**self.study, "model": model, "training": {**self.study["training"], "rule": rule}}
        trial: TrialConfig = config_from(TrialConfig, data, "the suite of rules")
        return trial

    def bench(self) -> tuple[OnlineUnit, dict[str, Tensor], Tensor]:
        """A unit, its parts, which can be differentiated by, and inputs ``[N, B, T, F]``."""
        suite = OnlineUnitSuite()
        suite.unit = self.trained_unit()
        unit = suite.build()
        return unit, suite.live_parts(unit), suite.inputs(unit)

    def test_it_is_described_and_can_train_some_unit(self) -> None:
        assert (self.part().__doc__ or "").strip(), f"{self.rule} has no docstring: memsweep list rules prints it"
        self.trained_unit()

    def test_what_it_traces_are_parts_of_the_unit(self) -> None:
        """The same ones each time: a rule has no state."""
        unit, *_ = self.bench()
        traced = self.part()().traced(unit)
        beyond = sorted(traced - unit.part_names)
        assert not beyond, f"traced: expected names among {sorted(unit.part_names)}, got {beyond} besides"
        equal("traced, asked twice", self.part()().traced(unit), traced)

    def test_states_are_those_of_the_unit(self) -> None:
        """In shape, kind and bits: a rule changes derivatives alone."""
        unit, parts, x_NBTF = self.bench()
        same(
            "states by the rule, expected as of the unit", self.states(unit, parts, x_NBTF), unit.states(parts, x_NBTF)
        )

    def test_its_gradient_is_the_one_that_it_declares(self) -> None:
        """By each part of a unit: the sum over steps of error times sensitivity, carried from step to step."""
        unit, parts, x_NBTF = self.bench()
        states = self.states(unit, parts, x_NBTF)
        found = gradients(states, parts)
        for name, expected in self.declared(unit, parts, x_NBTF, some(states)).items():
            same(f"gradient by the part {name}, expected by steps", found[name], expected, rtol=1e-10, atol=1e-10)

    def test_where_it_claims_to_be_exact_it_is_the_true_gradient(self) -> None:
        """By central differences: of the parts that it traces, or, of backpropagation through time, of all."""
        unit, parts, x_NBTF = self.bench()
        rule = self.part()()
        exact = unit.part_names if not rule.forward else rule.traced(unit) if rule.exact else frozenset()
        states = self.states(unit, parts, x_NBTF)
        found, outer = gradients(states, parts), some(states)

        def value(name: str, part: Tensor) -> float:
            with torch.no_grad():
                return float((outer.conj() * unit.states({**parts, name: part}, x_NBTF)).real.sum())

        for name in sorted(exact):
            expected = by_differences(parts[name].detach(), partial(value, name))
            same(f"gradient by the part {name}, expected by differences", found[name], expected, rtol=1e-6, atol=1e-6)

    def test_losses_are_those_of_the_model_and_gradients_are_repeated(self) -> None:
        """In a stack of two layers: the loss of backpropagation to rounding, and of two gradients all bits."""
        (loss, gradient), (again, repeated), (usual, true) = (
            self.step(name) for name in (self.rule, self.rule, "bptt")
        )
        same("losses, computed twice", again, loss)
        same("gradients, computed twice", repeated, gradient)
        same("losses by the rule, expected as of the model", loss, usual, rtol=1e-12)
        finite("gradients", gradient)
        equal("shape of the gradients", gradient.shape, true.shape)
        assert bool((gradient != 0).any()), f"no weight learns: all {gradient.numel()} numbers of the gradient are zero"

    def test_a_trial_trains_with_the_same_bits_again(self) -> None:
        (first,), (second,) = (run_pack([self.trial(self.rule)]) for _ in range(2))
        for seed, weights in first.weights.items():
            finite(f"weights of seed {seed}", torch.cat([value.flatten() for value in weights.values()]))
            moved = [name for name, value in weights.items() if not value.equal(second.weights[seed][name])]
            equal(f"weights of seed {seed} that are others in a second run", moved, [])

    def test_layers_that_are_not_trained_keep_their_weights(self) -> None:
        if self.part().trains_layers:
            return
        (learner, _), (_, gradient) = self.learner(self.rule), self.step(self.rule)
        for segment in learner.ensemble.layout.segments:
            if segment.role.layer is not None:
                most = float(gradient[:, segment.start : segment.stop].abs().max())
                assert most == 0, f"layer {segment.role.layer} learns: expected gradients of 0, got one of {most:.2g}"

    def states(self, unit: OnlineUnit, parts: Mapping[str, Tensor], x_NBTF: Tensor) -> Tensor:
        """Of a layer that learns by the rule, as training computes them."""
        rule = self.part()()
        return Batched(rule).states(0, unit, parts, x_NBTF) if rule.forward else unit.states(parts, x_NBTF)

    def declared(
        self, unit: OnlineUnit, parts: Mapping[str, Tensor], x_NBTF: Tensor, error_NBTM: Tensor
    ) -> dict[str, Tensor]:
        """Gradients that the parts must have, as the rule declares them; none of a rule that goes backward."""
        rule = self.part()()
        if not rule.forward:
            return {}
        if not rule.trains_layers:
            return {name: torch.zeros_like(part) for name, part in parts.items()}
        traced, states = rule.traced(unit), unit.states(parts, x_NBTF).detach()
        cut = unit.advance(parts, x_NBTF, before(states), rule.recurrent)
        single = gradients(cut, parts)
        return {
            name: carried(unit, parts, name, x_NBTF, states, error_NBTM) if name in traced else single[name]
            for name in parts
        }

    def learner(self, rule: str) -> tuple[Learner, Any]:
        """A learner before its first step, and its task loss."""
        trial = self.trial(rule)
        task = registry.get(registry.TASK, trial.task.name)(trial.task)
        replicas = [Replica(0, trial.model, seed, 0.01) for seed in range(trial.training.seeds)]
        model = registry.get(registry.MODEL, trial.model.name)
        (ensemble,) = build(model, replicas, Signature(1, 1, task.horizon), torch.float64, None)
        task_loss = task_loss_for([task], False, torch.float64)
        return Learner.start(ensemble, task_loss, trial.training), task_loss

    def step(self, rule: str) -> tuple[Tensor, Tensor]:
        """Losses and gradients of the first batch at the initial weights."""
        learner, task_loss = self.learner(rule)
        size = self.study["training"]["batch_size"]
        batch = ONE_SHARD.prepare(task_loss, task_loss.draw(Stream(0, TRAIN), 0, size))
        loss, gradient = learner.gradients(task_loss, batch)
        real = learner.ensemble.real
        return loss[real], gradient[real]


def carried(
    unit: OnlineUnit, parts: Mapping[str, Tensor], name: str, x_NBTF: Tensor, states: Tensor, error_NBTM: Tensor
) -> Tensor:
    """The sum over steps of the error times e_t = df_t/dpart + D_t e_{t-1}, D the diagonal of a step's Jacobian."""
    part, earlier = parts[name], before(states)
    slope_NBTM, total, sensitivity = unit.slope(parts, x_NBTF, earlier), torch.zeros_like(part), torch.zeros(())
    for step in range(x_NBTF.shape[2]):
        own = unit.immediate(parts, x_NBTF[:, :, step], earlier[:, :, step])[name]
        flat = (...,) + (None,) * (own.dim() - 3)
        sensitivity = own + slope_NBTM[:, :, step][flat] * sensitivity
        product = (sensitivity.conj() * error_NBTM[:, :, step][flat]).sum(1)
        total = total + (product if part.is_complex() else product.real)
    return total.detach()


def gradients(states: Tensor, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of the real part of the states' product with some numbers, by each part; zeros where no gradient arrives."""
    if not states.requires_grad:
        return {name: torch.zeros_like(part) for name, part in parts.items()}
    found = torch.autograd.grad(
        states, [*parts.values()], some(states), allow_unused=True, materialize_grads=True, retain_graph=True
    )
    return dict(zip(parts, found, strict=True))


def by_differences(at: Tensor, value: Callable[[Tensor], float]) -> Tensor:
    """The gradient of a real value by central differences; by complex numbers in torch's convention."""
    found = torch.zeros_like(at)
    for place in range(at.numel()):
        for unit in (1.0, 1j) if at.is_complex() else (1.0,):
            push = torch.zeros_like(at)
            push.view(-1)[place] = unit  # type: ignore[assignment]  # torch takes complex numbers
            found += push * (value(at + STEP * push) - value(at - STEP * push)) / (2 * STEP)
    return found


def _stack_of(unit: str) -> tuple[Any, Any]:
    """The deep model, and its Config with a unit."""
    model = registry.get(registry.MODEL, MODEL)
    return model, model.Config(unit=registry.get(registry.UNIT, unit).Config(), norm="none")
