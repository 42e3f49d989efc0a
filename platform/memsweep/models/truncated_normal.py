"""Normal numbers within two standard deviations, as JAX and flax draw initial weights."""

from __future__ import annotations

import math

import numpy as np

_CUT = 2.0


def truncated_normal(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Standard normal numbers, given that they lie within two deviations (variance 0.774): jax.random's."""
    from scipy.special import ndtr, ndtri

    low = ndtr(-_CUT)
    drawn: np.ndarray = ndtri(low + (1.0 - 2.0 * low) * rng.uniform(size=shape))
    return drawn


def lecun_normal(outputs: int, inputs: int, rng: np.random.Generator) -> np.ndarray:
    """A matrix ``[outputs, inputs]`` of truncated normal numbers with variance 1 / inputs: flax's dense layers."""
    return truncated_normal((outputs, inputs), rng) / (_deviation() * math.sqrt(inputs))


def _deviation() -> float:
    """Of the truncated numbers: sqrt(1 - 2 c phi(c) / (Phi(c) - Phi(-c))) at the cut c."""
    inside = math.erf(_CUT / math.sqrt(2.0))
    return math.sqrt(1.0 - 2.0 * _CUT * math.exp(-0.5 * _CUT**2) / math.sqrt(2.0 * math.pi) / inside)
