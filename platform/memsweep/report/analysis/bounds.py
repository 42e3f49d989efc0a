"""How near a measured perturbation error is to the true supremum over the ball, in words for beside a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from memsweep import registry

EXACT = ""
"""The error is the worst case: expected loss in closed form, recurrence diagonal, recurrent weights alone."""
DRAWN, SAMPLED, SEARCHED = "random draws", "sampled", "searched"
MARK = "†"
"""Beside a verdict that rests on lower bounds."""
EXPLANATIONS = {
    DRAWN: "largest of some random draws on the sphere: a weak lower bound of the worst case",
    SAMPLED: "worst case found by search, on a sample of sequences: a lower bound",
    SEARCHED: "worst case found by search (expected loss exact): a lower bound",
}


def bound_of(curves: pd.DataFrame, ball: str, model: Mapping[str, Any]) -> str:
    """Why the errors of one condition and ball are lower bounds of the supremum; EXACT where they reach it.

    Args:
        curves: of the condition and ball.
        ball: which weights moved.
        model: canonical form of the model's config.
    """
    if (curves["method"] != "worst_case").any():
        return DRAWN
    if not curves["exact"].all():
        return SAMPLED
    return EXACT if ball == "recurrent" and _diagonal(model) else SEARCHED


def _diagonal(model: Mapping[str, Any]) -> bool:
    """Whether every recurrent weight of a model is on the diagonal of its one layer.

    Pushing all of them is then the worst direction; through several layers it is not, and search finds worse ones.
    """
    from memsweep.config.core.build import INVALID, build
    from memsweep.models.base import Part

    fields = {key: value for key, value in model.items() if key != "name"}
    name = str(model.get("name"))
    if name not in registry.names(registry.MODEL):
        return False
    part = registry.get(registry.MODEL, name)
    config = build(part.Config, fields, "model", [])
    if config is INVALID:
        return False
    recurrent = [role for role in part.roles(config).values() if role.part is Part.RECURRENT]
    return all(role.diagonal and not role.layer for role in recurrent)
