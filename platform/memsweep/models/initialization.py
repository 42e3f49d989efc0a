"""Initial weights that several models share.

``spread``: one rate in each of ``width`` equal parts of the log range [1/horizon, 1] per step, so that every mode is
alive and none of the time scales of the task is left out; encoder and readout normal with deviation 1/sqrt(width).
``published``: raw recurrent weights from the standard normal distribution, whatever the parameterization makes of
them, and encoder and readout as torch.nn.Linear draws them (uniform within 1/sqrt(inputs of the layer), biases too):
the protocol of the Curse-of-memory code.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from memsweep.models.base import Signature
from memsweep.models.parameterizations.base import build

SPREAD, PUBLISHED = "spread", "published"
CHOICES = (SPREAD, PUBLISHED)
DOC = (
    "initial weights: spread (rates log-uniform between 1/horizon and 1 per step, every mode alive) or published "
    "(raw recurrent weights standard normal; encoder and readout as torch.nn.Linear)"
)


def spread_rates(width: int, horizon: int, rng: np.random.Generator) -> np.ndarray:
    """Rates per step, one draw in each of ``width`` equal parts of the log range: ``[width]``, fastest first."""
    # one draw in each part, so that no model starts with all of its modes at one end
    place = (np.arange(width) + rng.uniform(size=width)) / width
    return np.asarray(max(horizon, 2) ** -place)


def raw_rates(config: Any, horizon: int, rng: np.random.Generator) -> np.ndarray:
    """Raw recurrent weights of a model with a ``ModalConfig``: ``[width]``."""
    if config.initialization == PUBLISHED:
        return rng.standard_normal(config.width)
    rates = torch.from_numpy(spread_rates(config.width, horizon, rng) / config.dt)
    return build(config.parameterization).raw_for(rates, config.dt, config.discretization).numpy()


def encoder_and_readout(
    scheme: str, width: int, signature: Signature, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """encoder_weight ``[M, I]``, encoder_bias ``[M]``, readout_weight ``[O, M]``, readout_bias ``[O]``."""
    if scheme == PUBLISHED:
        near, far = 1.0 / math.sqrt(signature.inputs), 1.0 / math.sqrt(width)
        return {
            "encoder_weight": rng.uniform(-near, near, (width, signature.inputs)),
            "encoder_bias": rng.uniform(-near, near, width),
            "readout_weight": rng.uniform(-far, far, (signature.outputs, width)),
            "readout_bias": rng.uniform(-far, far, signature.outputs),
        }
    return {
        "encoder_weight": rng.standard_normal((width, signature.inputs)) / math.sqrt(width),
        "encoder_bias": np.zeros(width),
        "readout_weight": rng.standard_normal((signature.outputs, width)) / math.sqrt(width),
        "readout_bias": np.zeros(signature.outputs),
    }


_CUT = 2.0


def truncated_normal(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Standard normal numbers, given that they lie within two deviations (variance 0.774): jax.random's."""
    from scipy.special import ndtr, ndtri

    low = ndtr(-_CUT)
    # by the inverse distribution, not by rejection: a number takes exactly one draw, so that streams stay in step
    drawn: np.ndarray = ndtri(low + (1.0 - 2.0 * low) * rng.uniform(size=shape))
    return drawn


def lecun_normal(outputs: int, inputs: int, rng: np.random.Generator) -> np.ndarray:
    """A matrix ``[outputs, inputs]`` of truncated normal numbers with variance 1 / inputs: flax's dense layers."""
    return truncated_normal((outputs, inputs), rng) / (_deviation() * math.sqrt(inputs))


def _deviation() -> float:
    """Of the truncated numbers: sqrt(1 - 2 c phi(c) / (Phi(c) - Phi(-c))) at the cut c."""
    inside = math.erf(_CUT / math.sqrt(2.0))
    return math.sqrt(1.0 - 2.0 * _CUT * math.exp(-0.5 * _CUT**2) / math.sqrt(2.0 * math.pi) / inside)


def chrono_biases(width: int, horizon: int, rng: np.random.Generator) -> np.ndarray:
    """log U(1, T - 1): biases of forget gates that spread time scales over 1 ... the horizon (arXiv 1804.11188)."""
    return np.log(rng.uniform(1.0, max(2.0, horizon - 1.0), width))
