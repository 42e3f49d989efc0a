"""Initial weights of a layer of memsweep.models.stable_ssm.model.

``published``: S4D-Lin (arXiv 2206.11893): rates 0.5 and frequencies pi n per unit of time, complex normal output
weights, a normal skip, and a step for each channel, log-uniform between dt_min and dt_max. The slowest mode decays by
dt_min / 2 a step.
``spread``: for long memory. Steps of length 1, the rates of every channel log-uniform between 1/horizon and 1 per step,
frequencies far below them, no skip.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from memsweep.models import initialization
from memsweep.models.parameterizations.base import EXACT, build

FREE, RELATIVE = "free", "relative"
FREQUENCIES = (FREE, RELATIVE)

RATE = 0.5
"""Of every mode, when published; a map whose rates do not reach it starts near its fastest."""
TURN = 0.1
"""Largest frequency in units of the mode's rate, when spread: a mode forgets before it turns."""


def initial_layer(config: Any, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights of one layer by name (without the layer's number), float64.

    Args:
        config: of the model.
        horizon: sequence length.
        rng: where the numbers come from.
    """
    if config.initialization == initialization.PUBLISHED:
        return _published_modes(config, rng) | _around_modes(config, rng)
    return _spread_modes(config, horizon, rng) | _around_modes(config, rng)


def _published_modes(config: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    width, modes = config.width, config.state_size // 2
    unit = math.pi / RATE if config.frequency == RELATIVE else math.pi
    deviation = math.sqrt(0.5)  # of real and imaginary part: E|C|^2 = 1
    return {
        "log_dt": rng.uniform(math.log(config.dt_min), math.log(config.dt_max), width),
        "raw_rate": _raw(config, np.full((width, modes), RATE)),
        "frequency": np.tile(unit * np.arange(modes), (width, 1)),
        "output_re": rng.standard_normal((width, modes)) * deviation,
        "output_im": rng.standard_normal((width, modes)) * deviation,
    }


def _spread_modes(config: Any, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    width, modes = config.width, config.state_size // 2
    # neighbouring rates go to different channels, so that each channel has all time scales
    rates = initialization.spread_rates(width * modes, horizon, rng).reshape(modes, width).T.copy()
    return {
        "log_dt": np.zeros(width),
        "raw_rate": _raw(config, rates),
        "frequency": TURN * (1.0 if config.frequency == RELATIVE else rates) * rng.uniform(size=(width, modes)),
        "output_re": rng.standard_normal((width, modes)) / modes,
        "output_im": rng.standard_normal((width, modes)) / modes,
    }


def _raw(config: Any, rates: np.ndarray) -> np.ndarray:
    return build(config.parameterization).raw_for(torch.from_numpy(rates), 1.0, EXACT).numpy()


def _around_modes(config: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The rest of a layer; the mix and the normalization start as torch.nn.Conv1d and torch.nn.LayerNorm do."""
    width, near = config.width, 1.0 / math.sqrt(config.width)
    weights: dict[str, np.ndarray] = {}
    if config.skip:
        published = config.initialization == initialization.PUBLISHED
        weights["skip"] = rng.standard_normal(width) if published else np.zeros(width)
    if config.glu:
        weights["glu_weight"] = rng.uniform(-near, near, (2 * width, width))
        weights["glu_bias"] = rng.uniform(-near, near, 2 * width)
    if config.layer_norm:
        weights |= {"norm_weight": np.ones(width), "norm_bias": np.zeros(width)}
    return weights
