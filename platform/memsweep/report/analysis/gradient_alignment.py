"""How a learning rule's gradients stand to those of backpropagation through time: numbers by condition and layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from memsweep.report.analysis.losses import LossRow, Spread
from memsweep.report.naming.conditions import CONDITION

ALL = "all"
"""In the stored table, in the place of a layer: all weights, what belongs to no layer among them."""
MEASURES = ("cosine", "norm_ratio")
ALIGNMENT_COLUMNS = (
    *("task", *CONDITION, "width", "horizon", "layer", "seeds", "steps"),
    *(f"{measure}{end}" for measure in MEASURES for end in ("", "_low", "_high")),
)


@dataclass(frozen=True)
class AlignmentRow:
    """The replicas of one condition, width and horizon whose gradients were compared.

    Attributes:
        row: its losses and trials.
        table: seed, step, layer, cosine, norm_ratio: a row per comparison.
        layers: ``all``, then the layers from the one that reads the input -> measure -> over the seeds, the mean over
            the steps; nan where the true gradient was zero throughout.
    """

    row: LossRow
    table: pd.DataFrame
    layers: Mapping[str, Mapping[str, Spread]]

    @property
    def condition(self) -> Mapping[str, Any]:
        """Column -> value."""
        return self.row.condition

    @property
    def steps(self) -> int:
        """Training steps at which gradients were compared."""
        return int(self.table["step"].nunique())


def alignment_rows(rows: Sequence[LossRow], table: pd.DataFrame) -> list[AlignmentRow]:
    """Those of the rows whose gradients were compared, from the results' table ``alignment``."""
    if table.empty:
        return []
    parts = ((row, table[table["identity"].isin(row.identities)]) for row in rows)
    return [AlignmentRow(row, part, _layers(part)) for row, part in parts if not part.empty]


def alignment_frame(rows: Sequence[AlignmentRow], extra: Sequence[str]) -> pd.DataFrame:
    """A line per row and layer: ALIGNMENT_COLUMNS, then the study's extra columns."""
    lines = [_plain(row, layer) for row in rows for layer in row.layers]
    return pd.DataFrame(lines, columns=[*ALIGNMENT_COLUMNS, *extra])


def layer_name(layer: str) -> str:
    """``layer 0``, or ``all weights``."""
    return "all weights" if layer == ALL else f"layer {layer}"


def layers_of(rows: Sequence[AlignmentRow]) -> list[str]:
    """Every layer of these rows: ``all``, then by number."""
    return _in_order({layer for row in rows for layer in row.layers})


def _layers(table: pd.DataFrame) -> dict[str, dict[str, Spread]]:
    means = table.groupby(["layer", "seed"])[[*MEASURES]].mean()
    found = _in_order(set(table["layer"]))
    return {layer: {measure: Spread.of(means.loc[layer, measure]) for measure in MEASURES} for layer in found}


def _in_order(layers: set[str]) -> list[str]:
    return sorted(layers, key=lambda layer: -1 if layer == ALL else int(layer))


def _plain(row: AlignmentRow, layer: str) -> dict[str, Any]:
    data: dict[str, Any] = {**row.condition, "width": row.row.width, "horizon": row.row.horizon, "layer": layer}
    data |= {"seeds": row.table["seed"].nunique(), "steps": row.steps}
    for measure, spread in row.layers[layer].items():
        data |= {measure: spread.middle, f"{measure}_low": spread.low, f"{measure}_high": spread.high}
    return data
