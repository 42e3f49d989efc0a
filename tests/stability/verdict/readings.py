"""The readings of a radius on exact optimal fits: the limit slopes by which drift was chosen.

    python tests/stability/verdict/readings.py

prints a row per memory, map and number of modes: the errors of the fits, and the limit slope of the radius in the
horizon at 1, 3 and 10 %, where radii are read from the error (fit error included), from its excess over the error
without a push, and from the drift from the model's own outputs. The last lines say how far the slopes of fits that are
not nearly exact lie from those of the same memory and map that are.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from optimal_fits import optimal_fit

from engine import model_config, stacked, task_config
from memsweep.config.schema.trial import DRIFT, ERROR, EXCESS, PerturbationConfig, RadiiConfig
from memsweep.models.parameterizations.base import EXACT, build
from memsweep.stability.perturbation.error import perturbation_error
from memsweep.stability.verdict.radius import VALID_ERROR

READINGS = (ERROR, EXCESS, DRIFT)
HORIZONS = (50, 100, 200, 400)
MEMORIES: dict[str, dict[str, Any]] = {
    "e^-0.1t": {"kernel": "exponential", "rate": 0.1},
    "(1+0.1t)^-1.1": {"kernel": "polynomial", "rate": 0.1, "exponent": 1.1},
    "(1+0.4t)^-1.1": {"kernel": "polynomial", "rate": 0.4, "exponent": 1.1},
    "(1+0.1t)^-1.5": {"kernel": "polynomial", "rate": 0.1, "exponent": 1.5},
    "(1+0.2t)^-2": {"kernel": "polynomial", "rate": 0.2, "exponent": 2.0},
    "(1+0.4t)^-3": {"kernel": "polynomial", "rate": 0.4, "exponent": 3.0},
}
MAPS = ("direct", "exp", "softplus", "best")
MODES = (1, 2, 3, 4, 6, 8)
NEARLY_EXACT = 1e-5
"""Largest error of a nearly exact fit, as a share of the zero predictor's loss: a thousandth of the first threshold."""


@dataclass(frozen=True)
class Row:
    """Of one memory, map and number of modes.

    Attributes:
        errors: of the fits at the horizons, as shares of the zero predictor's loss.
        slopes: by reading, the limit slope at each threshold.
    """

    memory: str
    map: str
    modes: int
    errors: tuple[float, ...]
    slopes: dict[str, tuple[float, ...]]

    @property
    def valid(self) -> bool:
        return max(self.errors) <= VALID_ERROR

    @property
    def nearly_exact(self) -> bool:
        return max(self.errors) <= NEARLY_EXACT


@functools.cache
def _fit(memory: str, horizon: int, modes: int) -> tuple[np.ndarray, np.ndarray]:
    _, problem = stacked([model_config("exp", width=1)], task=_task(memory, horizon), rows=lambda _: 1)
    if MEMORIES[memory]["kernel"] == "exponential":  # its own rate, shared by equal modes
        return np.full(modes, np.exp(-MEMORIES[memory]["rate"])), np.full(modes, 1.0 / modes)
    importance = problem.population().lags[:horizon].numpy()
    return optimal_fit(problem.task.kernel().numpy(), importance, modes)


def _task(memory: str, horizon: int) -> Any:
    return task_config(horizon=horizon, weight_power=0.0, **MEMORIES[memory])


def _radii(memory: str, name: str, horizon: int, modes: Sequence[int]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Errors of the fits as shares, ``[modes]``, and by reading the radii at thresholds, ``[modes, thresholds]``."""
    models = [model_config(name, width=width) for width in modes]
    (ensemble,), problem = stacked(models, task=_task(memory, horizon), rows=lambda _: len(modes))
    named = ensemble.layout.named(ensemble.initial)
    named["encoder_bias"].zero_()
    named["readout_bias"].zero_()
    for row, width in enumerate(modes):
        eigenvalues, amplitudes = _fit(memory, horizon, width)
        part = build(ensemble.replicas[row].model.parameterization)
        rates = 1.0 - eigenvalues if name == "direct" else -np.log(eigenvalues)
        named["recurrent_weight"][row, :width] = part.raw_for(torch.from_numpy(rates), 1.0, EXACT)
        size = torch.from_numpy(np.sqrt(np.abs(amplitudes)))
        named["encoder_weight"][row, :width, 0] = size
        named["readout_weight"][row, 0, :width] = size * torch.from_numpy(np.sign(amplitudes))
    weights, targets = ensemble.layout.flat(named), ensemble.spread([problem.target(0)] * len(modes))
    found = {
        reading: perturbation_error(
            ensemble,
            problem,
            problem.population(),
            weights,
            targets,
            "recurrent",
            PerturbationConfig(radii=RadiiConfig(from_=1e-3, to=3.0, count=8), starts=1, reading=reading),
        )
        for reading in READINGS
    }
    shares = found[DRIFT].errors[: len(modes), 0].numpy() / problem.task.chance()
    return shares, {reading: each.crossings[: len(modes)].numpy() for reading, each in found.items()}


def rows(
    memories: Sequence[str] = tuple(MEMORIES), maps: Sequence[str] = MAPS, modes: Sequence[int] = MODES
) -> Iterator[Row]:
    """The rows of the table."""
    times = np.array(HORIZONS, float)
    terms = np.stack([np.ones(len(times)), np.log(times), times[0] / times], 1)
    for memory in memories:
        for name in maps:
            measured = [_radii(memory, name, horizon, modes) for horizon in HORIZONS]
            for place, width in enumerate(modes):
                slopes = {}
                for reading in READINGS:
                    logs = np.log([radii[reading][place] for _, radii in measured])
                    slopes[reading] = tuple(np.linalg.lstsq(terms, logs, rcond=None)[0][1].tolist())
                yield Row(memory, name, width, tuple(float(shares[place]) for shares, _ in measured), slopes)


def distances(table: Sequence[Row]) -> dict[str, float]:
    """By reading, the mean distance of slopes of valid fits from those of the smallest nearly exact one, if larger."""
    found: dict[str, list[float]] = {reading: [] for reading in READINGS}
    for row in table:
        exact = [e for e in table if (e.memory, e.map) == (row.memory, row.map) and e.nearly_exact]
        if row.valid and not row.nearly_exact and exact:
            best = min(exact, key=lambda each: each.modes)
            for reading, each in found.items():
                each.append(float(np.abs(np.subtract(row.slopes[reading], best.slopes[reading])).mean()))
    return {reading: float(np.mean(each)) for reading, each in found.items()}


def lines() -> Iterator[str]:
    """The table as text."""
    heads = "".join(f"{reading:^22}" for reading in READINGS)
    yield f"{'memory':>14} {'map':>9} {'modes':>5}  {'E(0) in % at T = 50 ... 400':<28}{heads}"
    table = []
    for row in rows():
        table.append(row)
        errors = " ".join(f"{100 * error:.3f}" for error in row.errors) + ("" if row.valid else " (too large)")
        slopes = "".join(" ".join(f"{s:+.3f}" for s in row.slopes[r]).center(22) for r in READINGS)
        yield f"{row.memory:>14} {row.map:>9} {row.modes:>5}  {errors:<28}{slopes}"
    yield "distance of the slopes of valid fits from those of nearly exact ones, in the mean:"
    for name, part in (("all", table), ("but direct", [row for row in table if row.map != "direct"])):
        yield f"{name}: " + ", ".join(f"{reading} {distance:.4f}" for reading, distance in distances(part).items())


if __name__ == "__main__":
    for line in lines():
        sys.stdout.write(f"{line}\n")
