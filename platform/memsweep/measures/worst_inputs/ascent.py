"""The perturbation error over weights and inputs: the largest error of the last output in a ball and a cube.

E(radius) = max |y_T(x) - y^_T(x; weights)| over pushes of the weights of at most the radius, and over inputs whose
every entry is at most a bound in size: the norm of arXiv 2305.19190, Definition 3.7 (its first term), at the last step,
with the inputs of a cube in the place of all. Projected gradient ascent climbs in both together. What it finds is a
lower bound of the maximum.

For a linear target and a linear model, which differ by d_s in their impulse responses and by b in the last output
without input, the worst input is known: a sign at each step, with the error bound * sum_s |d_s| + |b|.

Letters: K copies, each with an input sequence of its own, B sequences, R radii, S size of the flat weights, T time
(horizon).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.config.schema.trial import PerturbationConfig
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.models.base import as_linear
from memsweep.stability.perturbation.ascent import FIRST_STEP, LAST_STEP, NEAR_STEP, finite_or_inf
from memsweep.stability.perturbation.ball import Ball
from memsweep.stability.perturbation.moved import balanced, starts
from memsweep.streams import Stream

CORNERS = 256
"""Random corners of the cube, of which each ascent begins at the worst for its push."""
UNMOVED = 32
"""Ascents of the inputs alone, at radius 0: all others begin where the worst of them has ended, among other starts."""


@dataclass(frozen=True)
class WorstInputs:
    """The worst pushes with the worst inputs that were found, at radius 0 and at every radius.

    Attributes:
        errors: ``[R + 1]``, nondecreasing, inf where an output is not finite.
        weights: ``[R + 1, S]``, the moved weights; in the balanced gauge, where it is taken.
        inputs: ``[R + 1, T]``.
    """

    errors: Tensor
    weights: Tensor
    inputs: Tensor


@dataclass(frozen=True)
class _Point:
    """Copies with their errors ``[K]``, shifts of the weights ``[K, S]`` and inputs ``[K, T]``."""

    errors: Tensor
    shifts: Tensor
    inputs: Tensor

    def worse(self, other: _Point) -> _Point:
        """Of each copy the point of larger error, this one of equals."""
        larger = other.errors > self.errors
        return _Point(
            torch.where(larger, other.errors, self.errors),
            torch.where(larger.unsqueeze(-1), other.shifts, self.shifts),
            torch.where(larger.unsqueeze(-1), other.inputs, self.inputs),
        )

    def worst(self) -> _Point:
        """The copy of the largest error alone."""
        place = self.errors.argmax().reshape(1)
        return _Point(self.errors[place], self.shifts[place], self.inputs[place])


def worst_over_inputs(
    ensemble: Ensemble,
    weights: Tensor,
    kernel: Tensor,
    ball: str,
    config: PerturbationConfig,
    radii: tuple[float, ...],
    bound: float,
) -> WorstInputs:
    """The largest errors of the last output that a search finds over weights and inputs.

    Args:
        ensemble: of one replica, a model of one input and one output.
        weights: ``[1, S]``, the trained ones.
        kernel: ``[T]``, the impulse response of the target.
        ball: ``recurrent``, ``weights`` or ``all``.
        config: norm of the ball, gauge, starts, and steps of an ascent.
        radii: increasing, above 0.
        bound: of the size of every input.
    """
    weights = balanced(ensemble, weights, ball, config)
    search = _Search(
        ensemble, weights, kernel.to(weights), Ball(ensemble, ball, config.norm), config.ascent_steps, bound
    )
    units = starts(ensemble, weights, ball, config, config.starts)[0]
    drawn = Stream(config.seed, "input starts").generator().random((CORNERS, len(kernel))) < 0.5
    corners = torch.where(torch.from_numpy(drawn).to(weights.device), bound, -bound).to(weights)
    inputs = search.worst_of(torch.zeros_like(weights), corners, UNMOVED)
    found = [search.climb(weights.new_zeros(UNMOVED, weights.shape[1]), inputs, 0.0, FIRST_STEP).worst()]
    for radius in radii:
        path = found[-1]  # the worst point of the smaller radius lies in the larger ball
        reached = search.climb(radius * units, search.worst_of(radius * units, corners, 1), radius, FIRST_STEP)
        # once more, from the worst of all inputs for each push that was reached, and along the path
        inputs = search.worst_of(reached.shifts, torch.cat([corners, reached.inputs, path.inputs]), 1)
        shifts = torch.cat([reached.shifts, path.shifts])
        again = search.climb(shifts, torch.cat([inputs, path.inputs]), radius, NEAR_STEP)
        found.append(path.worse(reached.worst()).worse(again.worst()))
    errors, shifts, inputs = (
        torch.cat([getattr(each, name) for each in found]) for name in ("errors", "shifts", "inputs")
    )
    return WorstInputs(errors, weights + shifts, inputs)


@dataclass(frozen=True)
class _Search:
    """Ascents of one model's error in the ball and the cube; attributes as the arguments of ``worst_over_inputs``."""

    ensemble: Ensemble
    weights: Tensor
    kernel: Tensor
    ball: Ball
    steps: int
    bound: float

    @torch.no_grad()
    def worst_of(self, shifts: Tensor, inputs: Tensor, count: int) -> Tensor:
        """Of the inputs ``[B, T]`` for each shift ``[K, S]`` those with the largest errors: ``[K count, T]``."""
        return inputs[finite_or_inf(self._of_all(shifts, inputs)).topk(count, 1).indices.flatten()]

    def climb(self, shifts: Tensor, inputs: Tensor, radius: float, first_step: float) -> _Point:
        """Ascend from shifts ``[K, S]`` and inputs ``[K, T]``, and from the worst point of each ascent to a corner.

        Args:
            shifts, inputs: of the copies.
            radius: of the ball.
            first_step: in units of the radius, and of the bound.
        """
        best, size = self._at(shifts, inputs), self.weights.new_tensor([radius])
        for step in range(self.steps):
            of_weights, of_inputs = self._gradients(shifts, inputs)
            length = first_step * (LAST_STEP / first_step) ** (step / max(1, self.steps - 1))
            if radius:
                pushed = shifts + length * radius * self.ball.steepest(of_weights.unsqueeze(0))[0]
                shifts = self.ball.project(pushed.unsqueeze(0), size)[0]
            inputs = (inputs + length * self.bound * of_inputs).clamp(-self.bound, self.bound)
            best = best.worse(self._at(shifts, inputs))
        # of a linear model the signs of the gradient are the worst input for these weights, wherever they are taken
        _, signs = self._gradients(best.shifts, best.inputs)
        corner = torch.where(signs == 0.0, best.inputs, self.bound * signs)
        return best.worse(self._at(best.shifts, corner))

    def _gradients(self, shifts: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Of the errors by the weights ``[K, S]``, and the signs of those by the inputs ``[K, T]``."""
        shifts, inputs = shifts.detach().requires_grad_(), inputs.detach().requires_grad_()
        with torch.enable_grad():
            errors = self._errors(shifts, inputs)
            of_weights, of_inputs = torch.autograd.grad(errors.sum(), (shifts, inputs))
        return of_weights, torch.where(torch.isfinite(of_inputs), of_inputs, 0.0).sign()

    @torch.no_grad()
    def _at(self, shifts: Tensor, inputs: Tensor) -> _Point:
        return _Point(finite_or_inf(self._errors(shifts, inputs)), shifts, inputs)

    def _errors(self, shifts: Tensor, inputs: Tensor) -> Tensor:
        """|y_T - y^_T| of each copy on its own inputs, ``[K]``."""
        return self._of_all(shifts, inputs).diagonal()

    def _of_all(self, shifts: Tensor, inputs: Tensor) -> Tensor:
        """|y_T - y^_T| of each copy on each sequence, ``[K, B]``: kernels of models take one batch for all copies."""
        model, layout = self.ensemble.model, self.ensemble.layout
        named = layout.named((self.weights + shifts).unsqueeze(0))
        linear, last_first = as_linear(model), inputs.flip(1)
        if linear is not None:
            response = linear.response(named, len(self.kernel))
            differences = response.kernel[0, :, 0, 0] - self.kernel
            return (differences @ last_first.mT + response.drift[0, :, 0, -1:]).abs()
        return (model.outputs(named, inputs.unsqueeze(-1))[0, :, :, -1, 0] - last_first @ self.kernel).abs()
