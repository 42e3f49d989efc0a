"""Theoretical evidence shown besides a verdict: it supports or contradicts the verdict, and never decides it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from memsweep import registry
from memsweep.models.parameterizations.base import EXACT

if TYPE_CHECKING:
    from collections.abc import Mapping


def analytic_modulus(parameterization: Mapping[str, Any], radius: float, discretization: str = EXACT) -> float:
    """Sharp modulus g(radius) of a parameterization; ``inf`` means that it is not stable.

    Args:
        parameterization: its canonical form, ``{"name": ..., <fields>}``.
        radius: of the perturbation; nan gives nan.
        discretization: of the model; some discrete-time maps leave the unit circle though the rate's map is stable.

    Returns:
        nan where the parameterization is not registered here, such as that of a plugin that is not installed.
    """
    fields = dict(parameterization)
    name = str(fields.pop("name"))
    if math.isnan(radius):
        return math.nan
    try:
        part = registry.get(registry.PARAMETERIZATION, name)
    except KeyError:
        return math.nan
    return float(part(part.Config(**fields)).modulus(radius, discretization))


def distance_bound(target: np.ndarray, encoder_norm: float, readout_norm: float, slowest_rate: float) -> float:
    """Least L1 distance between a target kernel and any kernel of such weights.

    A normal linear recurrence of slowest rate r answers at lag s with at most C e^(-r s), C = |encoder| |readout|;
    the rest of the target cannot be approximated: sum_s (|rho_s| - C e^(-r s))_+. It is 0 for a target that decays as
    fast, and positive on a long enough horizon for every polynomial target.

    Args:
        target: kernel at lags 0, 1, ...
        encoder_norm, readout_norm: Euclidean norms of the weights.
        slowest_rate: -log of the largest eigenvalue, per step.
    """
    lags = np.arange(len(target))
    bound = encoder_norm * readout_norm * np.exp(-slowest_rate * lags)
    return float(np.maximum(np.abs(target) - bound, 0.0).sum())
