"""Stair gains: factors rho_i of the activation that change with the step i = 0, 1, ... of a sequence.

h_i = rho_i sigma(a_i). With 1-Lipschitz sigma and an orthogonal recurrent matrix the gradient from step t back to s is
at most rho_{s+1} ... rho_t, so that the schedule decides what memory is left. The definitions are those of the public
Stair RNN code:

=========  =====================  ==========================================================
name       rho_i                  rho_0 ... rho_{T-1} multiplied
=========  =====================  ==========================================================
n          1 - 1/(i+2)            1/(T+1): the memory is polynomial
n2         1 - 1/(i+2)^2          (T+2) / (2 (T+1)), which tends to 1/2: nothing fades for good
sqrtlogn   1 - 1/sqrt(ln(i+3))    falls faster than any power of T
logn       1 - 1/ln(i+2)          falls faster than any power of T
log2n      1 - 1/ln(2(i+4))       falls faster than any power of T
expn       1 - exp(-(i+2))        tends to 0.80: nothing fades for good
=========  =====================  ==========================================================

The first gain of logn is negative, -0.44: kept, because it is what was published.

Learned gains, one for each step of the task: ``alpha``, which are factors as above and start from 1, and
``exp_alpha``, rates gamma_i of h_i = (1 - exp(-gamma_i a_i)) sigma(a_i), which start from uniform(0, 1).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

NONE, ALPHA, EXP_ALPHA = "none", "alpha", "exp_alpha"

SCHEDULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "n": lambda step: 1.0 - 1.0 / (step + 2.0),
    "n2": lambda step: 1.0 - 1.0 / (step + 2.0) ** 2,
    "sqrtlogn": lambda step: 1.0 - 1.0 / np.sqrt(np.log(step + 3.0)),
    "logn": lambda step: 1.0 - 1.0 / np.log(step + 2.0),
    "log2n": lambda step: 1.0 - 1.0 / np.log(2.0 * (step + 4.0)),
    "expn": lambda step: 1.0 - np.exp(-(step + 2.0)),
}
"""The fixed gains, by name, as functions of the step."""
LEARNED = (ALPHA, EXP_ALPHA)
"""The learned ones."""


def schedule(name: str, steps: int) -> np.ndarray:
    """The fixed gains of the first steps, by a name of ``SCHEDULES``: ``[steps]``, float64."""
    return np.asarray(SCHEDULES[name](np.arange(steps, dtype=np.float64)))


def initial_gains(name: str, steps: int, rng: np.random.Generator) -> np.ndarray:
    """Initial gains of a task with so many steps, by a name of ``LEARNED``: ``[steps]``, float64."""
    return rng.uniform(size=steps) if name == EXP_ALPHA else np.ones(steps)
