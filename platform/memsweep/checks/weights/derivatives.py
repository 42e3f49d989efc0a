"""The derivatives of a module against differences of its outputs: by its inputs, by lag, and by each of its weights.

A detached state, a truncated gradient and a wrong backward function change no output. Central differences in float64
see them: outputs are projected on fixed random numbers, and their change along a random direction is compared with
what autograd says. A difference counts where two sizes of it and both of its sides agree, so that a kink is no fault.

Letters: B batch, T time (length), D directions, R projections.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from memsweep.checks.apart import difference
from memsweep.checks.finding import Curve, Finding, Status, finding, not_measured, show
from memsweep.checks.part import Check
from memsweep.checks.subject import SINGLE, WIDE, Subject, first
from memsweep.models.contracts import default_dtype

_LENGTH = 128
"""Steps over which weights are moved."""
_SIZES: Mapping[torch.dtype, tuple[float, ...]] = {WIDE: (1e-5, 1e-4), SINGLE: (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)}
"""Of a move, relative; of several, two neighbours that agree best are used, between rounding and curvature."""
_APART: Mapping[torch.dtype, float] = {WIDE: 1e-3, SINGLE: 0.1}
"""The relative difference from which a derivative is wrong."""
_ROUNDING: Mapping[torch.dtype, float] = {WIDE: 1e-13, SINGLE: 1e-7}
"""Of a projection, over the norm of its terms: their roundings have either sign."""
_SMOOTH = 0.02
"""Both sides of a difference, and its two sizes, agree to this share, or it is not compared."""
_CHAOTIC = 1e5
"""Growth of the last bit of an input from which differences measure rounding."""
_NAMED = 3
_TOGETHER = "all weights together"
_SMALL = 0.1


@dataclass
class _Compared:
    """All comparisons of one finding.

    Attributes:
        count, rough: comparisons made, and directions along which the outputs are not smooth.
        worst: the largest relative difference between a derivative and a difference.
        wrong: what has a wrong derivative -> the sentence.
    """

    count: int = 0
    rough: int = 0
    worst: float = 0.0
    wrong: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, regime: str, given: Tensor, sides: _Sides, dtype: torch.dtype) -> None:
        """Compares derivatives ``[R]`` with differences."""
        for row, slope in enumerate(given.tolist()):
            measured = sides.quotient(row)
            if not math.isfinite(slope):
                if sides.smooth(row):
                    self.count += 1
                    words = f"by {name} (inputs: {regime}): autograd gives {slope:g}, differences {show(measured)}"
                    self.wrong.setdefault(name, words)
                continue
            apart, size = abs(measured - slope), max(abs(measured), abs(slope), 1e-300)
            self.count += 1
            if apart <= 10 * sides.rounding(row):
                continue
            if apart <= _APART[dtype] * size:
                self.worst = max(self.worst, apart / size)
            elif sides.smooth(row):
                self.worst = max(self.worst, apart / size)
                words = f"by {name} (inputs: {regime}): autograd says {show(slope)}, differences {show(measured)}"
                self.wrong.setdefault(name, words)
            else:
                self.count, self.rough = self.count - 1, self.rough + 1


@dataclass(frozen=True)
class _Sides:
    """Projected outputs along one direction, on both sides.

    Attributes:
        at: the projections ``[R]`` at a distance; each is computed when it is asked for.
        distances: two or more, increasing.
        noise: rounding of a projection, ``[R]``.
    """

    at: Callable[[float], Tensor]
    distances: tuple[float, ...]
    noise: Tensor

    def quotient(self, row: int) -> float:
        """The central difference of one projection."""
        return self._over(self._pair(row)[0], row)

    def smooth(self, row: int) -> bool:
        """Whether both sides, and both distances, give one derivative."""
        near, far = (self._over(distance, row) for distance in self._pair(row))
        allowed = _SMOOTH * max(abs(near), abs(far)) + 10 * self.rounding(row)
        distance, middle = self._pair(row)[0], self.at(0.0)[row]
        below, above = middle - self.at(-distance)[row], self.at(distance)[row] - middle
        return abs(near - far) <= allowed and abs(float(above - below)) / distance <= 2 * allowed

    def rounding(self, row: int) -> float:
        return float(self.noise[row]) / self._pair(row)[0]

    def _pair(self, row: int) -> tuple[float, float]:
        """The neighbouring distances whose differences agree best."""
        pairs = itertools.pairwise(self.distances)
        return min(pairs, key=lambda pair: abs(self._over(pair[0], row) - self._over(pair[1], row)))

    def _over(self, distance: float, row: int) -> float:
        return float(self.at(distance)[row] - self.at(-distance)[row]) / (2 * distance)


def derivatives(subject: Subject, seconds: float) -> Finding:
    """Derivatives by inputs and weights, in each regime, against differences."""
    dtype = subject.inside
    if dtype not in _SIZES:
        return not_measured("derivatives", "it computes in half precision, which hides differences.", Status.SKIP)
    compared, start, chaotic = _Compared(), time.monotonic(), list[str]()
    reached: list[dict[str, Any]] = []
    if not subject.tokens:
        lengths = sorted({subject.length(_LENGTH), subject.horizon})
        for length in subject.affordable(lengths, 0.4 * seconds):
            regimes = {regime: inputs[:1] for regime, inputs in _regimes(subject, length).items()}
            steady = [regime for regime, inputs in regimes.items() if _steady(subject, inputs)]
            chaotic = sorted(name for name in regimes if name not in steady and _finite(subject, regimes[name]))
            reached = [_by_lag(subject, compared, regime, regimes[regime]) for regime in steady]
    weights = _by_weight(subject, compared, start + seconds)
    numbers = {
        "compared": compared.count,
        "not_smooth": compared.rough,
        "difference": compared.worst,
        "weights": weights,
        "length": max((len_["length"] for len_ in reached), default=subject.length(_LENGTH)),
        "wrong": sorted(compared.wrong),
        "chaotic": chaotic,
    }
    if not compared.count:
        return not_measured(
            "derivatives", "outputs are not smooth, chaotic, or not finite, wherever they were looked at."
        )
    wrong = sorted(compared.wrong, key=lambda name: name == _TOGETHER)  # one by one says more
    said = "; ".join(compared.wrong[name] for name in wrong[:_NAMED])
    faults = [f"Derivatives are not those of the outputs: {said}."]
    well = (
        f"{compared.count} derivatives, by inputs up to {numbers['length']} steps back and by {weights} weight "
        f"tensor{'' if weights == 1 else 's'}, agree with differences to "
        f"{f'{show(compared.worst)} of their size' if compared.worst else 'the rounding of these'}."
    )
    well += f" Not compared where outputs are chaotic: inputs {', '.join(chaotic)}." if chaotic else ""
    curves = [curve for each in reached if each["regime"] == "noise" for curve in each["curves"]]
    return finding("derivatives", well, numbers, faults=faults if compared.wrong else [], curves=curves)


def _regimes(subject: Subject, length: int) -> dict[str, Tensor]:
    """The regimes, with small noise in the place of zeros: there a norm has directional derivatives and no gradient."""
    regimes = subject.regimes(length)
    if not subject.tokens:
        del regimes["zeros"]
        regimes["small"] = subject.noise(1, length, 7, _SMALL)
    return regimes


def _finite(subject: Subject, inputs: Tensor) -> bool:
    return bool(torch.isfinite(subject(inputs)).all())


def _steady(subject: Subject, inputs: Tensor) -> bool:
    """Whether outputs are finite and not chaotic: the last bit of an input must not grow to what differences see."""
    outputs = subject(inputs)
    if subject.tokens or not torch.isfinite(outputs).all():
        return bool(torch.isfinite(outputs).all())
    bit = torch.finfo(subject.inside).eps
    return difference(subject(inputs * (1 + 2 * bit)), outputs) <= _CHAOTIC * bit


def _by_lag(subject: Subject, compared: _Compared, regime: str, inputs: Tensor) -> dict[str, Any]:
    """Moves the inputs of one block of steps after the other; blocks double with their distance from the end."""
    length, dtype = inputs.shape[1], subject.inside
    blocks = _blocks(length)
    directions = torch.stack([_direction(inputs[0], block) for block in blocks])
    outputs = subject(inputs)
    projections = _projections(outputs)
    slope = torch.stack([_slope(subject, inputs, each) for each in projections])
    moved = _moved(subject, inputs, directions, projections, dtype)
    points = []
    for number, block in enumerate(blocks):
        lags = f"inputs {length - block.stop} to {length - 1 - block.start} steps before the end"
        sides = moved(number)
        given = (slope * directions[number]).flatten(1).sum(1)
        compared.add(lags, regime, given, sides, dtype)
        points.append((float(length - block.stop), abs(float(given[0])), abs(sides.quotient(0))))
    lags_, given_, differences = (tuple(each) for each in zip(*points, strict=True))
    curves = [Curve("derivative", "autograd", lags_, given_), Curve("derivative", "differences", lags_, differences)]
    return {"regime": regime, "length": length, "curves": curves}


def _blocks(length: int) -> list[slice]:
    """Steps by their distance from the end: the last one, the one before, two, four, ..."""
    ends = [0, *(1 << power for power in range(length.bit_length()) if 1 << power < length), length]
    return [slice(length - far, length - near) for near, far in itertools.pairwise(ends)]


def _direction(inputs: Tensor, block: slice) -> Tensor:
    drawn = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(1), dtype=WIDE)
    direction = torch.zeros_like(drawn)
    direction[block] = drawn[block] / (block.stop - block.start) ** 0.5
    return direction


def _projections(outputs: Tensor) -> Tensor:
    """Random numbers for the last output, and for all outputs: ``[R, B, T, O]``."""
    drawn = torch.randn((2, *outputs.shape), generator=torch.Generator().manual_seed(2), dtype=WIDE)
    drawn[0, :, :-1] = 0
    return drawn


def _slope(subject: Subject, inputs: Tensor, projection: Tensor) -> Tensor:
    """The gradient of projected outputs by the inputs, ``[T, I]``."""
    dtype = subject.reference
    given = subject.cast(inputs, dtype).clone().requires_grad_()
    with default_dtype(dtype), torch.enable_grad():
        answer = first(subject.at(dtype)(given))
        if not answer.requires_grad:
            return torch.zeros(inputs.shape[1:], dtype=WIDE)
        total = (answer * projection.to(answer)).sum()
        (found,) = torch.autograd.grad(total, given, allow_unused=True)
    return torch.zeros(inputs.shape[1:], dtype=WIDE) if found is None else found[0].to("cpu", WIDE)


def _moved(
    subject: Subject, inputs: Tensor, directions: Tensor, projections: Tensor, dtype: torch.dtype
) -> Callable[[int], _Sides]:
    """The sides along each direction ``[D, T, I]`` of the inputs."""
    scale = float(inputs.square().mean().sqrt()) or 1.0
    distances = tuple(scale * size for size in _SIZES[dtype])
    noise = _noise(subject(inputs), projections, dtype)

    @cache
    def values(distance: float) -> Tensor:
        return _projected(subject(inputs + distance * directions), projections)

    return lambda number: _Sides(lambda distance: values(distance)[number], distances, noise)


def _projected(outputs: Tensor, projections: Tensor) -> Tensor:
    """``[B, T, O]`` and ``[R, 1, T, O]`` -> ``[B, R]``."""
    return torch.einsum("bto,rto->br", outputs, projections[:, 0])


def _noise(outputs: Tensor, projections: Tensor, dtype: torch.dtype) -> Tensor:
    return _ROUNDING[dtype] * (outputs * projections).flatten(1).norm(dim=1).clamp(min=1e-300)


def _by_weight(subject: Subject, compared: _Compared, end: float) -> int:
    """Moves all weights together in each regime, and one tensor after the other in the first one; how many of these."""
    module = subject.fresh(subject.reference)
    weights = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    moves = []
    for regime, inputs in _regimes(subject, subject.length(_LENGTH)).items():
        if weights and _steady(subject, inputs[:1]):
            moves.append(_Moves(subject, module, weights, inputs[:1], regime, compared))
            moves[-1].compare(_TOGETHER, [*weights])
    for single, name in enumerate(weights if moves else ()):
        if time.monotonic() > end:
            subject.left_out.append(f"{len(weights) - single} of {len(weights)} weights one by one")
            return single
        moves[0].compare(name, [name])
    return len(weights) if moves else 0


class _Moves:
    """Moves of weights at some inputs, of one regime."""

    def __init__(
        self,
        subject: Subject,
        module: nn.Module,
        weights: Mapping[str, Tensor],
        inputs: Tensor,
        regime: str,
        compared: _Compared,
    ) -> None:
        self._subject, self._module, self._weights, self._inputs = subject, module, weights, inputs
        self._regime, self._compared = regime, compared
        self._projection = _projections(subject(inputs, module=module))[1:]
        self._slopes = _weight_slopes(subject, module, weights, inputs, self._projection)

    def compare(self, name: str, names: Sequence[str]) -> None:
        """Compares along one random direction of the named weights."""
        directions = {each: _weight_direction(self._weights[each], place) for place, each in enumerate(names)}
        given = sum(_along(self._slopes[each], directions[each].cpu()) for each in names)
        sides = _weight_sides(self._subject, self._module, self._weights, self._inputs, directions, self._projection)
        self._compared.add(name, self._regime, torch.as_tensor(given).reshape(1), sides, self._subject.inside)


def _along(slope: Tensor, direction: Tensor) -> Tensor:
    """The derivative along a direction: torch's gradient by a complex weight is dy/dRe + i dy/dIm."""
    return (slope.conj() * direction).sum().real


def _wide(weight: Tensor) -> torch.dtype:
    return WIDE.to_complex() if weight.is_complex() else WIDE


def _weight_direction(weight: Tensor, place: int) -> Tensor:
    """A random direction; of a complex weight it moves both parts, as a fault may be in either."""
    drawn = torch.randn(weight.shape, generator=torch.Generator().manual_seed(3 + place), dtype=_wide(weight))
    size = float(weight.detach().abs().to(WIDE).square().mean().sqrt()) or 1.0
    return (size * drawn).to(weight.device)


def _weight_slopes(
    subject: Subject, module: nn.Module, weights: Mapping[str, Tensor], inputs: Tensor, projection: Tensor
) -> dict[str, Tensor]:
    with default_dtype(subject.reference), torch.enable_grad():
        answer = first(module(subject.cast(inputs, subject.reference)))
        if not answer.requires_grad:
            return {name: torch.zeros(weight.shape, dtype=_wide(weight)) for name, weight in weights.items()}
        total = (answer * projection[0].to(answer)).sum()
        found = torch.autograd.grad(total, [*weights.values()], allow_unused=True)
    return {
        name: torch.zeros(weight.shape, dtype=_wide(weight)) if slope is None else slope.to("cpu", _wide(weight))
        for (name, weight), slope in zip(weights.items(), found, strict=True)
    }


def _weight_sides(
    subject: Subject,
    module: nn.Module,
    weights: Mapping[str, Tensor],
    inputs: Tensor,
    directions: Mapping[str, Tensor],
    projection: Tensor,
) -> _Sides:
    """The sides along a direction of some weights, which are as before afterwards."""
    before = {name: weights[name].detach().clone() for name in directions}

    @cache
    def at(distance: float) -> Tensor:
        try:
            for name, direction in directions.items():
                weights[name].data.copy_(before[name] + distance * direction)
            return _projected(subject(inputs, module=module), projection)[0]
        finally:
            for name, value in before.items():
                weights[name].data.copy_(value)

    noise = _noise(subject(inputs, module=module), projection, subject.inside)
    return _Sides(at, _SIZES[subject.inside], noise)


CHECK = Check("derivatives", derivatives, place=60, share=0.12, needs=("shapes", "determinism", "batch"))
