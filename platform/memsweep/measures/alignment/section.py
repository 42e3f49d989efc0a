"""What a report says of the alignment: cosines and ratios of norms by layer, over the training and against depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memsweep.measures.alignment.names import MEASURES
from memsweep.measures.alignment.rows import AlignmentRow, alignment_rows, layer_name, varied
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import largest
from memsweep.report.naming.conditions import Labels, masked
from memsweep.report.read.fields import short_names
from memsweep.report.values.chart import ORDERED, Chart, chart, over_seeds, size_words, spread_point
from memsweep.report.values.section import FILES, Place, Section
from memsweep.report.values.table import CSV, EXPORTED, PAGE, TERMINAL, Column, Table, condition_columns

_WORDS = (
    "At some steps of the training, the rule's gradient and the true one (bptt) of the same batch and weights. Cosine: "
    "1 where they point the same way, 0 where they have nothing in common. Norm ratio: the length of the rule's "
    "gradient over that of the true one. Layers are counted from the input, which reaches layer 0 first. A norm in "
    "front of a unit belongs to its layer, and its gradient passes through that layer's recurrence. The encoder's "
    "gradient, which is among all weights, passes through every recurrence. All weights count by the length of their "
    "gradients, of which one may outweigh all others: where inputs are silent, the features that an encoder makes of "
    "them are small, and a norm that divides by their size makes the gradient of the encoder's bias long. bptt itself "
    "has cosine 1 and is not listed."
)
_NUMBERS = (
    "Numbers: mean over the steps compared (of norm ratios the geometric one); of these, the median over seeds "
    "[smallest, largest]. A rule that leaves a layer alone has cosine 0 and norm 0 there, which the charts' "
    "logarithmic axis does not reach; a dash: the true gradient is zero, too."
)
_CHARTED = (
    "Means over the steps compared, against what the study varies, and over the training at the largest size: medians "
    "over seeds, bands from the smallest to the largest."
)


def section(contents: Contents) -> Section:
    """Every condition and layer, and the curves of both numbers."""
    rows = alignment_rows(contents.trained, contents.measured)
    return Section(
        "Gradients beside those of backpropagation through time",
        _WORDS,
        alignment_table(rows, contents.grouping.columns, contents.labels),
        charts=[*alignment_charts(rows, contents.labels)],
        small=_NUMBERS,
        charted=_CHARTED,
        heading="Gradients beside those of bptt",
        key="",
        places={PAGE: Place.GRADIENTS, TERMINAL: Place.LAST, CSV: Place.TRAINED, FILES: Place.LAST},
    )


def alignment_table(
    rows: Sequence[AlignmentRow], names: Sequence[str], labels: Labels
) -> Table[tuple[AlignmentRow, str]]:
    """Cosine and norm ratio of each condition and layer, all weights first."""

    def measured(name: str) -> Column[tuple[AlignmentRow, str]]:
        return Column(name.replace("_", " "), lambda line: line[0].layers[line[1]][name], key=name, ends=True)

    columns: list[Column[tuple[AlignmentRow, str]]] = [
        *condition_columns(names, labels, lambda line: line[0].condition),
        Column("width", lambda line: line[0].row.width, varies=True),
        Column("horizon", lambda line: line[0].row.horizon, varies=True),
        Column("steps compared", lambda line: line[0].steps, key="steps", varies=True),
        Column("seeds", lambda line: line[0].seeds, views=EXPORTED),
        Column("layer", lambda line: line[1], layer_name),
        measured("cosine"),
        measured("norm_ratio"),
    ]
    lines = [(row, layer) for row in rows for layer in row.layers]
    return Table("alignment", "Alignment of gradients", lines, columns)


def alignment_charts(compared: Sequence[AlignmentRow], labels: Labels) -> Iterator[Chart]:
    """Both numbers over the training at the largest size, then against each number of the model that is varied."""
    shown = {id(row) for row in largest([row.row for row in compared])}
    for row in compared:
        if id(row.row) in shown:
            title = ", ".join([*labels.names(row.condition), *size_words(row.row.width, row.row.horizon, several=True)])
            for measure in MEASURES:
                lines = {
                    layer_name(layer): over_seeds(row.table[row.table["layer"] == layer].groupby("step")[measure])
                    for layer in row.layers
                }
                yield _measure(title, "training step", measure, lines)
    for field, name in short_names(varied(compared)).items():
        yield from _against(field, name, compared, labels)


def _against(field: str, name: str, compared: Sequence[AlignmentRow], labels: Labels) -> Iterator[Chart]:
    apart, groups = labels.without(field), dict[tuple[Any, ...], list[AlignmentRow]]()
    for row in sorted(compared, key=lambda row: float(row.condition[field] or 0)):
        rest = masked(row.condition, (field,))
        groups.setdefault((*rest.values(), row.row.width, row.row.horizon), []).append(row)
    for rows in (rows for rows in groups.values() if len(rows) > 1):
        title = ", ".join(apart.names(masked(rows[0].condition, (field,))))
        for measure in MEASURES:
            found: dict[str, list[Any]] = {}
            for row in rows:
                for layer, measures in row.layers.items():
                    point = spread_point(float(row.condition[field]), measures[measure])
                    found.setdefault(layer_name(layer), []).append(point)
            yield _measure(title, name, measure, found)


def _measure(title: str, x: str, measure: str, lines: Mapping[str, Sequence[Any]]) -> Chart:
    log = "" if measure == "cosine" else "y"
    return chart(title, x, measure.replace("_", " "), log, lines, levels=[[1, "bptt"]], look=ORDERED)
