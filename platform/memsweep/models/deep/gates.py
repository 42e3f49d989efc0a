"""Gates between a unit's answer and the features that go from layer to layer; they act on one step at a time.

Letters: see memsweep.models.deep.unit; O features that come out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from memsweep.models.affine import affine
from memsweep.models.base import Part, Role, Weights
from memsweep.models.initialization import lecun_normal

FULL_GLU, HALF_GLU1, HALF_GLU2, GELU, NONE = "full_glu", "half_glu1", "half_glu2", "gelu", "none"
MIXINGS = (FULL_GLU, HALF_GLU1, HALF_GLU2, GELU, NONE)
PLACES = 2
"""Places of a layer at which features are dropped: the input and the output of the gates."""

_MAPS = {FULL_GLU: ("mix", "gate"), HALF_GLU1: ("gate",), HALF_GLU2: ("gate",), GELU: (), NONE: ()}


def mixing_roles(mixing: str) -> dict[str, Role]:
    """Weights of the affine maps of one layer."""
    roles = {}
    for name in _MAPS[mixing]:
        roles[f"{name}_weight"] = Role(Part.READOUT, ("feature", "feature"))
        roles[f"{name}_bias"] = Role(Part.BIAS, ("feature",))
    return roles


def mixing_initial(mixing: str, features: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Their initial weights, as of ``affine_initial``."""
    return {
        key: value for name in _MAPS[mixing] for key, value in affine_initial(name, features, features, rng).items()
    }


def apply_gates(mixing: str, weights: Weights, a_NBTF: Tensor, drop: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Applies the gates of a layer to its unit's answers.

    Args:
        mixing: one of ``MIXINGS``.
        weights: of the layer, ``[N, *shape]`` each.
        a_NBTF: the unit's answers.
        drop: takes features and a place, 0 or 1.

    Returns:
        ``[N, B, T, F]``; the gelu is the one with tanh, flax's default.
    """
    if mixing == NONE:
        return a_NBTF
    activated = drop(functional.gelu(a_NBTF, approximate="tanh"), 0)
    if mixing == GELU:
        return activated
    if mixing == FULL_GLU:  # both maps have one input: one product [N, B, T, 2 F], and the gate in one pass over it
        maps = [torch.cat([weights[f"{name}_{what}"] for name in _MAPS[mixing]], 1) for what in ("weight", "bias")]
        return drop(functional.glu(affine(activated, *maps), -1), 1)
    gate = torch.sigmoid(affine(activated, weights["gate_weight"], weights["gate_bias"]))
    return drop((activated if mixing == HALF_GLU1 else a_NBTF) * gate, 1)


def affine_initial(name: str, outputs: int, inputs: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Of an affine map: normal with variance 1 / inputs, cut off at two deviations; bias zero (flax's dense layers)."""
    return {f"{name}_weight": lecun_normal(outputs, inputs, rng), f"{name}_bias": np.zeros(outputs)}
