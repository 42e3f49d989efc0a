"""Projection of clamped raw weights to their rates, as the published code does before it perturbs a model.

A model with the parameterization ``relu`` becomes one with ``direct``: the same function, whose weights may then leave
the clamp. Other parameterizations stay as they are.
"""

from __future__ import annotations

import dataclasses

from torch import Tensor

from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.models.parameterizations.base import build


def project(ensemble: Ensemble, weights: Tensor) -> tuple[Ensemble, Tensor]:
    """The ensemble without clamps, and its weights ``[rows, size]``."""
    configs = [replica.model for replica in ensemble.replicas]
    if not all(hasattr(config, "parameterization") for config in configs):
        return ensemble, weights
    free = [build(config.parameterization).projection() for config in configs]  # None: stays as it is
    weights = weights.clone()
    for segment in ensemble.layout.segments:
        if segment.role.rate:
            columns = slice(segment.start, segment.stop)
            for row, part in enumerate(free):
                if part is not None:
                    weights[row, columns] = build(configs[row].parameterization).rate(weights[row, columns])
    replicas = tuple(
        dataclasses.replace(replica, model=dataclasses.replace(replica.model, parameterization=part.config))
        if part is not None
        else replica
        for replica, part in zip(ensemble.replicas, free, strict=True)
    )
    chosen = [replica.model for replica in replicas]
    model = type(ensemble.model).ensemble_of(
        chosen + chosen[:1] * (ensemble.rows - len(chosen)), ensemble.model.signature
    )
    return dataclasses.replace(ensemble, replicas=replicas, model=model.to(weights.dtype).eval()), weights
