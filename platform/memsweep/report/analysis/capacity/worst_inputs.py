"""The perturbation error over weights and inputs: for each condition, size and ball, by radius."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from memsweep.report.analysis.losses import Spread
from memsweep.report.naming.conditions import Grouping, group
from memsweep.report.read.study import Study


@dataclass(frozen=True)
class WorstInputsRow:
    """The largest errors of the last output found over weights and inputs, of one condition, size and ball.

    Attributes:
        condition: column -> value, as in a Finding.
        ball: which weights move.
        bound: of the size of every input.
        errors: ``identity``, ``seed``, ``radius``, ``error``, ``zero_error`` and ``share``, the former of the latter.
    """

    condition: Mapping[str, Any]
    width: int | None
    horizon: int
    ball: str
    bound: float
    errors: pd.DataFrame

    @cached_property
    def by_radius(self) -> dict[float, Spread]:
        """Radius -> the error as a share of the largest output of the target, over the seeds."""
        radii = self.errors["radius"]
        return {float(r): Spread.of(self.errors.loc[radii == r, "share"]) for r in sorted(radii.unique())}


def worst_inputs_rows(study: Study, grouping: Grouping) -> list[WorstInputsRow]:
    """A row per condition, size, ball and bound that was measured."""
    rows = []
    for condition, identities in grouping.members():
        table = study.of("worst_inputs", identities).dropna(subset=["width", "horizon"])
        errors = table.assign(share=table["error"] / table["zero_error"])
        for of, part in group(errors, ["width", "horizon", "ball", "bound"]):
            rows.append(WorstInputsRow(condition, of["width"], of["horizon"], of["ball"], of["bound"], part))
    return rows
