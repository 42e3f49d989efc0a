"""Radii are found by a root finder: against closed forms, on the grids of the studies that come with memsweep."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from engine import model_config, stacked, task_config, trial
from memsweep.config.schema.trial import SELF, RadiiConfig
from memsweep.models.parameterizations.base import EXACT, build
from memsweep.stability.perturbation.crossing import COLD, WARM, crossings
from memsweep.stability.perturbation.error import perturbation_error
from memsweep.stability.perturbation.reference import referred
from memsweep.stability.verdict.radius import THRESHOLDS

GRIDS = {
    "quickstart": RadiiConfig(from_=1e-4, to=3.0, count=30),
    "curse_of_memory": RadiiConfig(from_=5e-4, to=3.0, count=12),
    "asha_demo": RadiiConfig(from_=1e-4, to=3.0, count=12),
    "atlas": RadiiConfig(from_=1e-4, to=1.0, count=9),
    "rules_stability": RadiiConfig(from_=1e-3, to=3.0, count=20),
    "orthogonal_memory": RadiiConfig(from_=1e-3, to=1.0, count=9),
    "atlas_memories": RadiiConfig(from_=1e-3, to=0.1, count=5),
    "lag_kernels": RadiiConfig(from_=1e-4, to=3.0, count=15),
    "below": RadiiConfig(from_=2.0, to=3.0, count=2),
    "above": RadiiConfig(from_=0.01, to=0.02, count=2),
}
HORIZON, RATE = 64, 0.3


def closed_form(name: str, threshold: float) -> float:
    """The radius of the exponential memory, represented exactly by one mode, whose rate alone moves.

    The distance of two such modes is a sum over lags of the squared difference of their powers; the worst push is the
    one towards slower modes. Without an error of the fit, all readings agree.
    """
    time = np.arange(1, HORIZON + 1) / HORIZON  # squared temporal weights, up to their scale
    heard = np.cumsum((time**4)[::-1])[::-1]
    lags, target = np.arange(HORIZON), np.exp(-RATE * np.arange(HORIZON))
    part = build(model_config(name, width=1).parameterization)
    rate = 1.0 - math.exp(-RATE) if name == "direct" else RATE
    raw = float(part.raw_for(torch.tensor(rate, dtype=torch.float64), 1.0, EXACT))

    def share(push: float) -> float:
        moved = float(part.rate(torch.tensor(raw + push, dtype=torch.float64)))
        eigenvalue = 1.0 - moved if name == "direct" else math.exp(-moved)
        return float(heard @ (eigenvalue**lags - target) ** 2) / float(heard @ target**2)

    radii = [
        brentq(lambda radius, sign=sign: share(sign * radius) - threshold, 1e-9, 0.5)
        for sign in (1.0, -1.0)
        if share(sign * 0.5) > threshold
    ]
    return min(radii)


def found(name: str, grid: RadiiConfig, reading: str, gain: float = 1.0, target: float = RATE) -> np.ndarray:
    task = task_config(horizon=HORIZON, kernel="exponential", rate=target)
    (ensemble,), problem = stacked([model_config(name, width=1)], task=task, rows=lambda _: 1)
    named = ensemble.layout.named(ensemble.initial)
    for weight in named.values():
        weight[0] = 0.0
    part = build(model_config(name, width=1).parameterization)
    rate = 1.0 - math.exp(-RATE) if name == "direct" else RATE
    named["recurrent_weight"][0, :1] = part.raw_for(torch.tensor([rate], dtype=torch.float64), 1.0, EXACT)
    named["encoder_weight"][0, 0], named["readout_weight"][0, 0, 0] = 1.0, gain
    effort: dict[str, Any] = {"radii": grid, "starts": 0, "ascent_steps": 4}
    how = {"reference": SELF} if reading == SELF else {"reading": reading}
    config = trial(perturbation=effort | how)
    targets, weights = ensemble.spread([problem.target(0)]), ensemble.layout.flat(named)
    data, limits = problem.population(), None
    if reading == SELF:
        _, scales = referred(ensemble, problem, data, weights, config)
        limits = scales.unsqueeze(-1) * scales.new_tensor(THRESHOLDS)
    numbers = (data, weights, targets, "recurrent", config.perturbation)
    return perturbation_error(ensemble, problem, *numbers, limits=limits).crossings[0].numpy()


@pytest.mark.parametrize("reading", ["drift", pytest.param("error", marks=pytest.mark.more)])
@pytest.mark.parametrize("name", ["direct", "exp"])
@pytest.mark.parametrize(
    "grid",
    [g if g in ("curse_of_memory", "below", "above") else pytest.param(g, marks=pytest.mark.more) for g in GRIDS],
)
def test_a_radius_is_that_of_the_closed_form_on_every_grid(grid: str, name: str, reading: str) -> None:
    expected = [closed_form(name, threshold) for threshold in THRESHOLDS]
    assert np.abs(np.log(found(name, GRIDS[grid], reading) / expected)).max() < 0.002


@pytest.mark.parametrize("name", ["direct", "exp"])
def test_by_itself_a_radius_is_that_of_the_closed_form_whatever_the_gain_and_the_target(name: str) -> None:
    """Distance and variance both have the square of the gain, and the target, of another rate, enters neither."""
    expected = [closed_form(name, threshold) for threshold in THRESHOLDS]
    by_itself = found(name, GRIDS["curse_of_memory"], SELF, gain=3.0, target=5 * RATE)
    assert np.abs(np.log(by_itself / expected)).max() < 0.002


CURVES = {
    "power": lambda r: r**2,
    "steep": lambda r: r**9,
    "flat": lambda r: 0.9 + 0.2 * r / (1 + r),
    "pole": lambda r: torch.where(r < 0.9, r / (0.9 - r).clamp(min=1e-9), torch.inf),
    "jump": lambda r: torch.where(r < 0.7, 0.1 * r, torch.inf),
    "step": lambda r: r**2 + 5.0 * torch.sigmoid((r - 0.5) / 0.01),
}
ROOTS = {"power": 1.0, "steep": 1.0, "flat": 1.0, "pole": 0.45, "jump": 0.7, "step": None}


@pytest.mark.parametrize("start", [0.05, 0.5, 4.0])
def test_crossings_of_any_curve_are_found_from_either_side(start: float) -> None:
    """Each row by itself: with the others, it has the same bits as alone."""
    limits = torch.ones(len(CURVES), 1, dtype=torch.float64)

    def loss(radii: torch.Tensor) -> torch.Tensor:
        return torch.stack([curve(row) for curve, row in zip(CURVES.values(), radii, strict=True)])

    together = crossings(loss, limits, torch.full_like(limits, start), 100.0, 2 * COLD)
    for place, (name, curve) in enumerate(CURVES.items()):
        alone = crossings(lambda r, own=curve: own(r), limits[:1], torch.full_like(limits[:1], start), 100.0, 2 * COLD)
        assert torch.equal(alone.radii, together.radii[place : place + 1])
        assert bool(together.found[place]), name
        expected = ROOTS[name] or brentq(lambda r, own=curve: float(own(torch.tensor(r))) - 1.0, 0.1, 1.0)
        assert float(together.radii[place]) == pytest.approx(expected, rel=0.002), name


def test_where_nothing_is_crossed_within_reach_the_radius_is_a_bound() -> None:
    limits = torch.ones(2, 1, dtype=torch.float64)
    at = crossings(lambda r: torch.stack([0.5 + 0 * r[0], 2.0 + 0 * r[1]]), limits, torch.ones_like(limits), 8.0)
    assert at.found.tolist() == [[False], [False]]
    assert at.radii[0].item() == pytest.approx(8.0)
    assert at.radii[1].item() < 1e-3


def test_a_bracket_that_is_open_after_the_steps_is_closed_by_more() -> None:
    """A jump, and a power that is steeper than the steps can follow; each row as alone."""
    curves = (CURVES["jump"], lambda r: r**200, CURVES["power"])
    limits = torch.ones(len(curves), 1, dtype=torch.float64)
    for start in (0.05, 0.35, 1.4):
        at = crossings(
            lambda r: torch.stack([curve(row) for curve, row in zip(curves, r, strict=True)]),
            limits,
            torch.full_like(limits, start),
            100.0,
            WARM,
        )
        assert at.found.all()
        assert at.radii.flatten().tolist() == pytest.approx([0.7, 1.0, 1.0], rel=0.002)
        assert float(at.radii[0]) < 0.7  # a radius inside of the limit
        for place, curve in enumerate(curves):
            alone = crossings(curve, limits[:1], torch.full_like(limits[:1], start), 100.0, WARM)
            assert torch.equal(alone.radii, at.radii[place : place + 1])


def test_an_error_that_falls_at_first_is_within_every_limit() -> None:
    """The growth of an error (excess) is negative there, and no infinite one."""
    limits = torch.full((1, 1), 0.01, dtype=torch.float64)
    for start in (1e-3, 0.1, 0.35, 1.4, 4.0):
        at = crossings(lambda r: r**2 - 0.05 * r, limits, torch.full_like(limits, start), 100.0)
        assert bool(at.found)
        assert at.radii.item() == pytest.approx(0.1280776, rel=0.002)
