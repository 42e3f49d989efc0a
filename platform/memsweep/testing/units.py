"""The contract of every unit, and of units that learn forward in time: deep models and rules stand on it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep import registry
from memsweep.models.deep.contract.derivatives import (
    BATCH,
    HORIZON,
    REPLICAS,
    by_rows,
    inputs_of,
    live_parts,
    run_by_steps,
    state_jacobian,
    weights_of,
)
from memsweep.models.deep.unit import OnlineUnit, Unit, before
from memsweep.testing.checks import differing, equal, of_generator, plain_config, same

WIDTH = 4


class UnitSuite:
    """Inherit and set ``unit``; the default Config is tested, or the one in ``config``.

    Attributes:
        unit: registered name.
        config: a Config to test instead of the default one.
    """

    unit: str
    config: Any = None

    def build(self) -> Unit:
        """A unit whose features are not as many as its width, where it allows that."""
        unit_class: type[Unit] = registry.get(registry.UNIT, self.unit)
        config = self.config if self.config is not None else unit_class.Config()
        features = next(size for size in (WIDTH - 1, WIDTH) if unit_class.refusal(config, WIDTH, size) is None)
        return unit_class(config, WIDTH, features)

    def weights(self, unit: Unit) -> dict[str, Tensor]:
        """Of a stack of replicas, no weight zero: zeros hide mistakes."""
        return weights_of(unit)

    def live_weights(self, unit: Unit) -> dict[str, Tensor]:
        return {name: weight.requires_grad_() for name, weight in self.weights(unit).items()}

    def inputs(self, unit: Unit) -> Tensor:
        return inputs_of(unit)

    def test_config_is_documented_and_plain(self) -> None:
        plain_config(self.build().config)

    def test_every_weight_has_a_role_and_its_shape(self) -> None:
        unit, initial = self.build(), self.build().initial(HORIZON, np.random.default_rng(0))
        sizes = {"width": unit.width, "feature": unit.features}
        equal("names of the weights (roles says what is expected)", initial.keys(), unit.roles().keys())
        for name, role in unit.roles().items():  # an axis of the unit's own has the same size in all weights
            for axis, size in zip(role.axes, initial[name].shape, strict=True):
                assert sizes.setdefault(axis, size) == size, f"{name} has {size} along its axis {axis}"
        equal("kinds of the initial weights", {str(weight.dtype) for weight in initial.values()}, {"float64"})

    def test_initial_weights_are_a_function_of_the_generator(self) -> None:
        first, again, other = (self.build().initial(HORIZON, np.random.default_rng(seed)) for seed in (0, 0, 1))
        of_generator(first, again, other)

    def test_gradients_are_finite_and_reach_every_weight(self) -> None:
        unit, x_NBTF = self.build(), self.inputs(self.build())
        weights = self.live_weights(unit)
        unit.run(weights, x_NBTF).square().sum().backward()
        for name, weight in weights.items():
            assert weight.grad is not None, f"no gradient reaches {name}"
            assert torch.isfinite(weight.grad).all(), f"the gradient of {name} is not finite"
            assert not silent(weight.grad), f"the gradient of {name} is zero"

    def test_answers_are_real_and_those_of_steps_one_after_the_other(self) -> None:
        """Values, and gradients by all weights and inputs: backpropagation through time."""
        unit, outcomes = self.build(), []
        for run in (unit.run, partial(run_by_steps, unit)):
            weights, x_NBTF = self.live_weights(unit), self.inputs(unit).requires_grad_()
            answers = run(weights, x_NBTF)
            equal("shape of the answers", answers.shape, x_NBTF.shape)
            equal("kind of the answers", answers.dtype, x_NBTF.dtype)
            found = torch.autograd.grad(answers, [*weights.values(), x_NBTF], some(answers))
            outcomes.append([answers, *found])
        for result, expected in zip(*outcomes, strict=True):
            same(
                "answers, or gradients by weights and inputs, expected by steps",
                result,
                expected,
                rtol=1e-10,
                atol=1e-10,
            )

    def test_replicas_and_sequences_do_not_mix(self) -> None:
        unit, x_NBTF = self.build(), self.inputs(self.build())
        weights = self.weights(unit)
        alone = unit.run({name: weight[1:] for name, weight in weights.items()}, x_NBTF[1:, 2:])
        same(
            "answers of a replica and sequence beside others, expected as alone",
            unit.run(weights, x_NBTF)[1:, 2:],
            alone,
            rtol=1e-12,
            atol=1e-12,
        )

    def test_a_unit_that_answers_with_its_states_reads_any_number_of_features(self) -> None:
        """As the first layer of a stack without an encoder, by steps and as a whole."""
        built, reading = self.build(), WIDTH + 1
        if not built.answers_with_states:
            return
        unit = type(built)(built.config, WIDTH, reading)
        weights, x_NBTF = self.weights(unit), self.inputs(unit)
        for name, role in unit.roles().items():
            read = [size for axis, size in zip(role.axes, weights[name].shape[1:], strict=True) if axis == "feature"]
            assert all(size == reading for size in read), f"{name} has {read} columns for {reading} features"
        answers = unit.run(weights, x_NBTF)
        equal("shape of the answers", tuple(answers.shape), (REPLICAS, BATCH, HORIZON, WIDTH))
        same("answers, expected by steps", answers, run_by_steps(unit, weights, x_NBTF), rtol=1e-10, atol=1e-10)
        unit.eigenvalues(weights)

    def test_causality(self) -> None:
        unit, x_NBTF = self.build(), self.inputs(self.build())
        weights, changed = self.weights(unit), x_NBTF.clone()
        changed[:, :, 4:] += 1.0
        first, second = unit.run(weights, x_NBTF), unit.run(weights, changed)
        same("answers before the step from which inputs are others", first[:, :, :4], second[:, :, :4])
        differing("answers from step 4 on, whose inputs are others", second[:, :, 4:], first[:, :, 4:])


class OnlineUnitSuite(UnitSuite):
    """The same, of a unit that learns forward in time: its states, parts and derivatives besides."""

    def build(self) -> OnlineUnit:
        unit = super().build()
        assert isinstance(unit, OnlineUnit), f"expected an OnlineUnit, got {type(unit).__name__}"
        return unit

    def live_parts(self, unit: OnlineUnit) -> dict[str, Tensor]:
        """Parts that can be differentiated by, apart from the weights."""
        return live_parts(unit)

    def test_parts_have_a_row_for_every_state(self) -> None:
        unit = self.build()
        parts = unit.parts(self.weights(unit))
        equal("names of the parts (part_names says what is expected)", set(parts), unit.part_names)
        beyond = unit.forgetting - unit.part_names
        assert not beyond, f"forgetting: expected names among part_names, got {sorted(beyond)} besides"
        for name, part in parts.items():
            equal(f"first axes of the part {name}", tuple(part.shape[:2]), (REPLICAS, unit.width))

    def test_states_are_steps_one_after_the_other(self) -> None:
        """Values, and gradients by all parts and inputs: backpropagation through time."""
        unit, outcomes = self.build(), []
        for run in (unit.states, lambda parts, x_NBTF: stepped(unit, parts, x_NBTF)):
            parts, x_NBTF = self.live_parts(unit), self.inputs(unit).requires_grad_()
            states = run(parts, x_NBTF)
            equal("shape of the states", states.shape, (REPLICAS, BATCH, HORIZON, unit.width))
            outer = some(states)
            outcomes.append([states, *torch.autograd.grad(states, [*parts.values(), x_NBTF], outer)])
        for result, expected in zip(*outcomes, strict=True):
            same(
                "answers, or gradients by weights and inputs, expected by steps",
                result,
                expected,
                rtol=1e-12,
                atol=1e-12,
            )

    def test_all_steps_at_once_are_the_states(self) -> None:
        unit, x_NBTF = self.build(), self.inputs(self.build())
        parts = self.live_parts(unit)
        states = unit.states(parts, x_NBTF)
        same(
            "all steps at once, expected as the states",
            unit.advance(parts, x_NBTF, before(states)),
            states,
            rtol=1e-12,
            atol=1e-12,
        )

    def test_slope_is_the_diagonal_of_the_jacobian(self) -> None:
        unit, x_NBTF, states, parts = self.step()
        slope = unit.slope(parts, x_NBTF, states)
        equal("shape of slope", slope.shape, states.shape)
        equal("kind of slope", slope.dtype, states.dtype)
        jacobian = state_jacobian(unit, parts, x_NBTF, states)
        same(
            "slope, expected as the diagonal of autograd's Jacobian",
            slope,
            jacobian.diagonal(dim1=-2, dim2=-1),
            rtol=1e-12,
            atol=1e-12,
        )
        off_diagonal = jacobian - torch.diag_embed(jacobian.diagonal(dim1=-2, dim2=-1))
        equal(
            "whether the Jacobian of a step is diagonal (elementwise says what is expected)",
            bool((off_diagonal == 0).all()),
            unit.elementwise,
        )

    def test_a_state_feels_its_own_row_of_every_part(self) -> None:
        """``immediate`` is the derivative by that row, and there is no other."""
        unit, x_NBTF, states, parts = self.step()
        expected = by_rows(unit, parts, x_NBTF, states)
        result = unit.immediate(parts, x_NBTF[:, :, 0], states[:, :, 0])
        equal("names of immediate's derivatives (part_names says what is expected)", set(result), unit.part_names)
        for name, own in expected.items():
            equal("shape of an immediate derivative", result[name].shape, (REPLICAS, BATCH, *parts[name].shape[1:]))
            equal("kind of an immediate derivative", result[name].dtype, states.dtype)
            diagonal = own.diagonal(dim1=1, dim2=2).movedim(-1, 1)
            same(
                "immediate derivative, expected by autograd",
                result[name].flatten(0, 1),
                diagonal,
                rtol=1e-12,
                atol=1e-12,
            )
            off = ~torch.eye(unit.width, dtype=torch.bool)
            assert bool((own[:, off] == 0).all()), f"a state feels another one's row of {name}"

    def test_a_cut_recurrent_connection_has_the_same_value_and_no_gradient(self) -> None:
        """None reaches the states before or what multiplies them; that of the input is what it was."""
        unit, x_NBTF, states, parts = self.step()
        x_NBTF, states = x_NBTF.requires_grad_(), states.detach().requires_grad_()
        whole, cut = (unit.advance(parts, x_NBTF, states, recurrent) for recurrent in (True, False))
        same("outputs from no states", whole, cut)
        outer = some(whole)
        by_input, expected = (torch.autograd.grad(value, x_NBTF, outer, retain_graph=True)[0] for value in (cut, whole))
        same(
            "gradient by the input with a cut recurrence, expected as without",
            by_input,
            expected,
            rtol=1e-12,
            atol=1e-12,
        )
        at_rest = unit.advance(parts, x_NBTF, torch.zeros_like(states))
        live = [*parts.values(), states]
        reached = torch.autograd.grad(cut, live, outer, allow_unused=True)
        multiplying = torch.autograd.grad(at_rest, live, outer, allow_unused=True)
        known = torch.autograd.grad(whole, live, outer)
        held = set()
        for name, gradient, rest, full in zip((*parts, "before"), reached, multiplying, known, strict=True):
            assert not silent(full), f"no gradient reaches {name} at all"
            if silent(rest):
                assert silent(gradient), f"a gradient reaches {name} through the recurrent connection"
                held.add(name)
        assert "before" in held, f"what multiplies the states before: expected them among it, got {sorted(held)}"
        beyond = held - {"before"} - unit.forgetting  # what acts through the state alone is inside the recurrence
        assert not beyond, f"what acts through the state alone: {sorted(beyond)} besides what forgetting names"

    def test_answers_know_their_own_step_alone(self) -> None:
        unit, x_NBTF = self.build(), self.inputs(self.build())
        weights = self.weights(unit)
        states = unit.states(unit.parts(weights), x_NBTF)
        answers = unit.answers(weights, states, x_NBTF)
        one = unit.answers(weights, states[:, :, 2:3], x_NBTF[:, :, 2:3])
        same(
            "answers of a step among others, expected as of the step alone",
            answers[:, :, 2:3],
            one,
            rtol=1e-12,
            atol=1e-12,
        )

    def test_eigenvalues_are_those_of_a_step_near_rest(self) -> None:
        unit = self.build()
        weights = self.weights(unit)
        result = unit.eigenvalues(weights)
        if result is None:
            return
        parts = unit.parts(weights)
        inputs = self.inputs(unit)[:, :1, :1]
        nearly = torch.full_like(unit.states(parts, inputs), 1e-9)  # a corner at zero has a slope here
        jacobian = state_jacobian(unit, parts, torch.zeros_like(inputs), nearly)[:, 0, 0]
        expected = torch.linalg.eigvals(jacobian)
        distance = (result.to(expected.dtype).unsqueeze(-1) - expected.unsqueeze(-2)).abs()
        most = max(float(distance.amin(axis).max()) for axis in (-1, -2))
        assert most < 1e-7, f"eigenvalues: expected those of a step's Jacobian within 1e-7, got {most:.2g} off"

    def step(self) -> tuple[OnlineUnit, Tensor, Tensor, dict[str, Tensor]]:
        """A unit, the input of one step ``[N, B, 1, F]``, states before it ``[N, B, 1, M]``, and parts."""
        unit = self.build()
        x_NBTF, parts = self.inputs(unit), self.live_parts(unit)
        return unit, x_NBTF[:, :, 4:5], unit.states(parts, x_NBTF)[:, :, 3:4].detach(), parts


def stepped(unit: OnlineUnit, parts: Mapping[str, Tensor], x_NBTF: Tensor) -> Tensor:
    """States, one step after the other."""
    steps = [x_NBTF[:, :, index : index + 1] for index in range(x_NBTF.shape[2])]
    kind = unit.slope(parts, steps[0], x_NBTF.new_zeros(*steps[0].shape[:3], unit.width)).dtype
    state, states = x_NBTF.new_zeros(*steps[0].shape[:3], unit.width, dtype=kind), []
    for x_NB1F in steps:
        state = unit.advance(parts, x_NB1F, state)
        states.append(state)
    return torch.cat(states, 2)


def some(like: Tensor) -> Tensor:
    """Random numbers of a tensor's shape and type."""
    return torch.randn(like.shape, dtype=like.dtype, generator=torch.Generator().manual_seed(3))


def silent(gradient: Tensor | None) -> bool:
    return gradient is None or bool((gradient == 0).all())
