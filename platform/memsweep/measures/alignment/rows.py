"""A learning rule's gradients compared with those of backpropagation through time, by condition and layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from memsweep.measures.alignment.names import ALL, MEASURES
from memsweep.report.analysis.losses import LossRow, Spread
from memsweep.report.naming.numbers import is_number
from memsweep.report.read.study import Study


@dataclass(frozen=True, eq=False)
class AlignmentRow:
    """The replicas of one condition, width and horizon whose gradients were compared.

    Attributes:
        row: its losses and trials.
        table: seed, step, layer, cosine, norm_ratio: a row per comparison.
        layers: ``all``, then the layers from the one that reads the input -> measure -> over the seeds, the mean over
            the steps, of ratios the geometric one; nan where the true gradient was zero throughout.
    """

    row: LossRow
    table: pd.DataFrame
    layers: Mapping[str, Mapping[str, Spread]]

    @property
    def condition(self) -> Mapping[str, Any]:
        """Column -> value."""
        return self.row.condition

    @property
    def seeds(self) -> int:
        """How many have comparisons."""
        return int(self.table["seed"].nunique())

    @property
    def steps(self) -> int:
        """Training steps at which gradients were compared."""
        return int(self.table["step"].nunique())


def alignment_rows(rows: Sequence[LossRow], study: Study) -> list[AlignmentRow]:
    """Those of the rows whose gradients were compared."""
    parts = ((row, study.of("alignment", row.identities)) for row in rows)
    return [AlignmentRow(row, part, _layers(part)) for row, part in parts if not part.empty]


def varied(rows: Sequence[AlignmentRow]) -> list[str]:
    """The numbers of the model that differ between the rows, beside its width: dotted paths."""
    names = [name for name in rows[0].condition if name.startswith("model.")] if rows else []
    found = {name: {row.condition[name] for row in rows} - {None} for name in names}
    return [name for name, values in found.items() if len(values) > 1 and all(map(is_number, values))]


def layer_name(layer: str) -> str:
    """``layer 0``, or ``all weights``."""
    return "all weights" if layer == ALL else f"layer {layer}"


def _layers(table: pd.DataFrame) -> dict[str, dict[str, Spread]]:
    with np.errstate(divide="ignore"):  # a gradient of zero makes its ratio, and their geometric mean, zero
        logs = table.assign(norm_ratio=np.log(table["norm_ratio"]))
    means = logs.groupby(["layer", "seed"])[[*MEASURES]].mean()
    means["norm_ratio"] = np.exp(means["norm_ratio"])
    return {
        layer: {measure: Spread.of(means.loc[layer, measure]) for measure in MEASURES}
        for layer in _in_order(set(table["layer"]))
    }


def _in_order(layers: set[str]) -> list[str]:
    return sorted(layers, key=lambda layer: -1 if layer == ALL else int(layer))
