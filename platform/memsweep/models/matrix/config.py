"""The Config fields of models whose recurrence is one dense matrix (see memsweep.models.matrix.base)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from memsweep.config.core.fields import setting
from memsweep.models.matrix.initial import GENERATORS, INPUTS, MATRICES, RANDOM_ORTHOGONAL, XAVIER
from memsweep.recurrence.cell import MODRELU

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


LINEAR = "linear"
INITIALIZATION_DOC = (
    "initial recurrent matrix: henaff (each pair of units turned by an angle s uniform in (-pi, 0)), cayley (by small "
    "ones, s = -tan(u/2), u uniform in (0, pi/2)) or random_orthogonal (uniform among all that the model reaches)"
)


@dataclass(frozen=True, kw_only=True)
class MatrixConfig:
    """The fields that all models of the family share; a model's own Config adds to them."""

    width: int = setting(8, "hidden size", at_least=1, at_most=10_000)
    activation: str = setting(
        MODRELU,
        "activation inside the recurrence: linear (none), tanh, relu, modrelu (sign(a) relu(|a| + b) with a trained "
        "threshold b for each unit) or hardtanh",
        choices=(LINEAR, "tanh", "relu", MODRELU, "hardtanh"),
    )
    stair: str = setting(
        NONE,
        "gains of the steps, counted from the beginning of a sequence: none (all are 1), a fixed schedule that rises "
        "to 1 (n, n2, sqrtlogn, logn, log2n, expn), alpha (one trained gain for each step of the task) or exp_alpha "
        "(trained rates g of 1 - exp(-g a) for the pre-activation a)",
        choices=(NONE, *SCHEDULES, *LEARNED),
    )
    initialization: str = setting(RANDOM_ORTHOGONAL, INITIALIZATION_DOC, choices=GENERATORS)
    input_initialization: str = setting(
        XAVIER, "initial input weights: xavier (Glorot) or kaiming (He), normal", choices=INPUTS
    )
    embedding: int = setting(
        0, "size of a trained linear embedding of the inputs (0: none)", at_least=0, at_most=10_000
    )
    bias: bool = setting(True, "a trained bias next to the input weights")


@dataclass(frozen=True, kw_only=True)
class FreeConfig(MatrixConfig):
    """The same for models whose raw recurrent weights are a matrix without constraint."""

    initialization: str = setting(
        RANDOM_ORTHOGONAL,
        f"{INITIALIZATION_DOC}, or xavier (Glorot normal, not orthogonal)",
        choices=MATRICES,
    )
