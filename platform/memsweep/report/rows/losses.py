"""Losses, learning rates and gradients' alignment as tables, and the sentences that sum them up."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memsweep.report.analysis.gradient_alignment import ALL as ALL_WEIGHTS
from memsweep.report.analysis.gradient_alignment import AlignmentRow, layer_name
from memsweep.report.analysis.learning_rates import RateStudy, rate_of
from memsweep.report.analysis.losses import BELOW, CRITERIA, LossRow, largest
from memsweep.report.analysis.rule_ranking import rankings, sentence
from memsweep.report.naming.conditions import KERNEL
from memsweep.report.naming.labels import Labels, field_name
from memsweep.report.naming.numbers import figure, joined, percent, show
from memsweep.report.rows.table import (
    ALL,
    CSV,
    EXPORTED,
    NOTHING,
    PAGE,
    SHOWN,
    Cell,
    Column,
    Table,
    condition_columns,
    spread_text,
)

BASELINE = (
    f"A seed is below the memoryless baseline, the best that a model can do which forgets each input after its own "
    f"step, when its loss is by more than {percent(1 - BELOW)} smaller."
)
_MOST_CONDITIONS, _MOST_RANKINGS, _MOST_COSINES = 12, 4, 8


def loss_table(rows: Sequence[LossRow], names: Sequence[str], labels: Labels) -> Table[LossRow]:
    """The final loss and metric of each condition, width and horizon."""
    metrics = {row.metric for row in rows if row.metric}
    metric = metrics.pop().replace("_", " ") if len(metrics) == 1 else ""  # the one that all have names its column
    on_page = frozenset({PAGE, CSV})
    baseline = ALL if has_baseline(rows) else EXPORTED
    columns: list[Column[LossRow]] = [
        *condition_columns(names, labels),
        Column("width", lambda row: row.width, varies=True),
        Column("horizon", lambda row: row.horizon, varies=True),
        Column("seeds", lambda row: row.seeds, views=EXPORTED),
        Column("loss", lambda row: row.loss, ends=True),
        Column("relative loss", _relative_loss, percent, key="relative_loss", unit="of L₀"),
        Column("memoryless baseline", lambda row: row.memoryless, key="memoryless_loss", views=baseline),
        Column("below it", _below, cell=_below_cell, key="below_memoryless", unit="seeds", views=baseline),
        Column("metric", lambda row: row.metric or None, views=EXPORTED),
        Column(
            metric or "metric",
            lambda row: row.value,
            cell=lambda row: metric_cell(row, named=not metric),
            key="metric_value",
            ends=True,
            optional=True,
        ),
        Column(
            "best step",
            lambda row: row.spread("best_step"),
            lambda steps: spread_text(steps, digits=6),
            key="best_step",
            ends=True,
            optional=True,
            varies=True,
        ),
        Column("diverged", lambda row: row.diverged, cell=_diverged_cell, unit="seeds", optional=True),
        *(_criterion(name, on_page) for name in CRITERIA),
    ]
    return Table("losses", "Final losses", rows, columns)


def _relative_loss(row: LossRow) -> float:
    return row.loss.middle / row.zero_loss if row.zero_loss > 0 else math.nan


def _criterion(name: str, views: frozenset[str]) -> Column[LossRow]:
    word = name.removeprefix("gradient_over_weight_").replace("q90", "90 %")
    return Column(
        f"gradient / weight, {word}", lambda row: row.spread(name).middle, key=name, views=views, optional=True
    )


def _below(row: LossRow) -> int | None:
    return row.below if row.memoryless > 0 else None


def _below_cell(row: LossRow) -> Cell:
    if _below(row) is None:
        return Cell("")
    return Cell(f"{row.below} of {row.seeds}", tone="stable" if row.beats_memoryless else "")


def _diverged_cell(row: LossRow) -> Cell:
    return Cell(f"{row.diverged} of {row.seeds}" if row.diverged else "", tone="bad")


def metric_cell(row: LossRow, *, named: bool = True, spread: bool = True) -> Cell:
    """``accuracy 93.1 %``, or a plain number for a metric that is no share; empty without a metric.

    Args:
        named: with the name of the metric.
        spread: with the smallest and the largest over seeds, where they differ.
    """
    if not row.metric or math.isnan(row.value.middle):
        return Cell("")
    name = f"{row.metric.replace('_', ' ')} " if named else ""
    share = "accuracy" in row.metric
    ends = (row.value.middle, row.value.low, row.value.high)
    middle, low, high = (f"{100 * value:.1f}" if share else figure(value) for value in ends)
    unit = " %" if share else ""
    whole = f"{name}{middle} [{low}, {high}]{unit}" if spread and low != high else f"{name}{middle}{unit}"
    return Cell(whole, terminal=(whole, f"{name}{middle}{unit}"))


def has_baseline(rows: Sequence[LossRow]) -> bool:
    """Whether any row has a memoryless baseline to beat."""
    return bool(_compared_with_memoryless(rows))


def _compared_with_memoryless(rows: Sequence[LossRow]) -> list[LossRow]:
    """The rows with a memoryless baseline whose task asks no question of a kernel."""
    return [row for row in rows if row.memoryless > 0 and row.condition.get(KERNEL) is None]


def settings_table(rows: Sequence[LossRow], labels: Labels) -> Table[LossRow]:
    """The settings that follow from a row's name, which it therefore does not say: a column each."""
    names = [name for name in labels.following if len({row.condition[name] for row in rows}) > 1]
    columns: list[Column[LossRow]] = [*condition_columns((), labels)]
    columns += [_setting(name) for name in names]
    first = {(labels.memory(row.condition), labels.machine(row.condition)): row for row in reversed(rows)}
    return Table("settings", "Settings that go with these names", [*first.values()][::-1] if names else (), columns)


def _setting(name: str) -> Column[LossRow]:
    return Column(field_name(name), lambda row: row.condition[name], show, views=SHOWN)


def rate_tables(studies: Sequence[RateStudy]) -> list[Table[tuple[str, tuple[LossRow, ...]]]]:
    """Per study, the median loss by line and learning rate."""
    return [
        Table(
            "rates",
            f"{study.memory} ({study.machine})",
            [*study.lines.items()],
            [
                Column("median loss under", lambda line: line[0], views=SHOWN, style="name"),
                *(_rate_column(rate) for rate in study.rates),
            ],
        )
        for study in studies
    ]


def _rate_column(rate: float) -> Column[tuple[str, tuple[LossRow, ...]]]:
    def cell(line: tuple[str, tuple[LossRow, ...]]) -> Cell:
        row = next((row for row in line[1] if rate_of(row) == rate), None)
        if row is None:
            return Cell(NOTHING)
        notes = [(metric_cell(row, spread=False).text, "")]
        notes += [(f"{row.diverged} of {row.seeds} diverged", "bad")] if row.diverged else []
        return Cell(figure(row.loss.middle), notes=tuple(note for note in notes if note[0]))

    return Column(f"{rate:g}", lambda line: line[1], cell=cell, views=SHOWN)


def alignment_table(
    rows: Sequence[AlignmentRow], names: Sequence[str], labels: Labels
) -> Table[tuple[AlignmentRow, str]]:
    """Cosine and norm ratio of each condition and layer, all weights first."""

    def measured(name: str) -> Column[tuple[AlignmentRow, str]]:
        return Column(name.replace("_", " "), lambda line: line[0].layers[line[1]][name], key=name, ends=True)

    columns: list[Column[tuple[AlignmentRow, str]]] = [
        *condition_columns(names, labels, lambda line: line[0].condition),
        Column("width", lambda line: line[0].row.width, show, once=True),
        Column("horizon", lambda line: line[0].row.horizon, show, once=True),
        Column("steps compared", lambda line: line[0].steps, show, key="steps", once=True),
        Column("seeds", lambda line: line[0].seeds, views=EXPORTED),
        Column("layer", lambda line: line[1], layer_name),
        measured("cosine"),
        measured("norm_ratio"),
    ]
    lines = [(row, layer) for row in rows for layer in row.layers]
    return Table("alignment", "Alignment of gradients", lines, columns)


def baseline_sentences(rows: Sequence[LossRow], labels: Labels) -> list[str]:
    """Which models are below the memoryless baseline, in a sentence per task."""
    sentences = []
    for memory in dict.fromkeys(labels.memory(row.condition) for row in rows):
        part = [row for row in _compared_with_memoryless(rows) if labels.memory(row.condition) == memory]
        groups = {
            "below the memoryless baseline in all seeds": [row for row in part if row.beats_memoryless],
            "below it in some seeds": [row for row in part if 0 < row.below < row.seeds],
            "at the memoryless baseline or above it in all seeds": [row for row in part if row.below == 0],
        }
        sizes = {"width": {row.width for row in part}, "horizon": {row.horizon for row in part}}
        varied = [name for name, values in sizes.items() if len(values) > 1]
        parts = [f"{words}: {_named(members, labels, varied)}" for words, members in groups.items() if members]
        if parts:
            sentences.append(f"On {memory}, {'; '.join(parts)}.")
    return sentences


def _named(rows: Sequence[LossRow], labels: Labels, sizes: Sequence[str]) -> str:
    """The models of these rows, with the sizes in which their task's rows differ."""
    names = []
    for row in rows:
        at = ", ".join(f"{size} {show(getattr(row, size))}" for size in sizes)
        names.append(labels.machine(row.condition) + (f" ({at})" if at else ""))
    names = list(dict.fromkeys(names))
    return joined(names) if len(names) <= _MOST_CONDITIONS else f"{len(names)} conditions"


def rule_sentences(rows: Sequence[LossRow], labels: Labels, rates: Sequence[RateStudy]) -> list[str]:
    """The ranking of the rules of each task and size; of many, the first, and the number of the others.

    None where the study varies the learning rate: at a rate that is right for one rule and wrong for another, a
    ranking says nothing of the rules.
    """
    ranked = [] if rates else rankings(rows, labels)
    left_out = len(ranked) - _MOST_RANKINGS
    more = f"{left_out} more conditions have several rules: see their losses."
    return [*map(sentence, ranked[:_MOST_RANKINGS]), *([more] if left_out > 0 else [])]


def alignment_sentences(rows: Sequence[AlignmentRow], labels: Labels) -> list[str]:
    """The cosine of every layer, by task and condition, at the largest size; one sentence per task.

    The cosine of all weights is left out: a single long gradient may outweigh all others in it.
    """
    shown = {id(row) for row in largest([row.row for row in rows])}
    sentences = []
    for memory in dict.fromkeys(labels.memory(row.condition) for row in rows):
        part = [row for row in rows if id(row.row) in shown and labels.memory(row.condition) == memory]
        named = [f"{labels.machine(row.condition)} {_cosines(row)}" for row in part]
        left_out = len(named) - _MOST_COSINES
        more = f"; {left_out} more in alignment.csv" if left_out > 0 else ""
        text = "; ".join(named[:_MOST_COSINES])
        sentences.append(
            f"Cosine of each layer's gradient with that of bptt, from the input on, on {memory}: {text}{more}."
        )
    return sentences


def _cosines(row: AlignmentRow) -> str:
    """Medians over the seeds: ``0.93, 1``."""
    return ", ".join(figure(spreads["cosine"].middle) for layer, spreads in row.layers.items() if layer != ALL_WEIGHTS)
