"""The rule of the best learning rate, and the ceilings, as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from memsweep.analyses.rates.ceilings import TRAINS, RateCeiling, rank_correlations
from memsweep.analyses.rates.rule import AXES, FAR, HeldOut, RateRule
from memsweep.report.analysis.losses import CRITERIA, Spread
from memsweep.report.naming.conditions import RATE, Labels
from memsweep.report.naming.numbers import figure, interval, joined, percent, show, slope_text, with_interval
from memsweep.report.rows.losses import criterion_word
from memsweep.report.values.table import EXPORTED, NOTHING, Cell, Column, Table, condition_columns, spread_cell
from memsweep.stability.verdict.trend import Slope

RULES_MEAN = (
    "The best learning rate as a power of the width m and the horizon T, fitted for each seed to all sizes but the "
    "largest m and the largest T; exponents with 95 % over seeds. One rate: the geometric mean of the best ones of "
    "the fitted sizes; below 1, the rule beats it at the sizes that were held out (geometric mean [95 %]). Held out: "
    "the rate by this rule [95 %], the best rate (median over seeds [least, most]), best over predicted (geometric "
    "mean [95 %]), and the test loss at the predicted rate, interpolated between the rates that were tried, over that "
    "at the one rate that is best for all seeds together (median [least, most]). The best rate of a seed is "
    "the vertex, in logarithms, of the parabola through its least validation loss and those at the next rates on both "
    "sides. Nobody may have trained at it. It is the tried rate itself where one of the next diverged or is more than "
    f"a factor of {FAR:g} away. At an end: seeds whose best rate is the first or the last that was tried; intervals "
    "are infinite where it may lie beyond."
)
CEILINGS_MEAN = (
    f"Ceiling: the highest tried learning rate at which a seed ends below {percent(TRAINS)} of the zero predictor's "
    "loss, as it does at all tried rates between it and the lowest that trains. Fails at: the next tried rate. Where "
    f"none was tried, that is {NOTHING}, and the ceiling is this rate or higher (≥). Medians over seeds [smallest, "
    "largest]."
)
PREDICTED_MEANS = (
    "Predicted: c / max |gradient / weight|, where that ratio is from the training at the smallest rate, and one c "
    "serves all conditions of a memory."
)


def rule_table(rules: Sequence[RateRule], names: Sequence[str], labels: Labels) -> Table[tuple[RateRule, HeldOut]]:
    """The best learning rate by sizes: a row for each size that was held out, in the group of its rule."""
    labels = labels.without(RATE)

    def exponent(name: str) -> Column[tuple[RateRule, HeldOut]]:
        key = f"exponent_{name}"
        return Column(key, lambda line: line[0].exponents.get(name), key=key, ends=True, views=EXPORTED)

    def heading(line: tuple[RateRule, HeldOut]) -> str:
        rule = line[0]
        signs = [
            f"{letter}^{_exponent_text(rule.exponents[name])}" for name, letter in _LETTERS if name in rule.exponents
        ]
        ends = [f"{name} {show(values[0])} to {show(values[-1])}" for name, values in rule.fitted.items()]
        sides = f"{labels.memory(rule.condition)}, {labels.machine(rule.condition)}"
        gain = (
            f"loss by the rule over that by one rate: {with_interval(rule.gain.middle, rule.gain.low, rule.gain.high)}"
        )
        return f"{sides}: rate ~ {' '.join(signs)}, fitted to {joined(ends)}; {gain}"

    columns: list[Column[tuple[RateRule, HeldOut]]] = [
        *(column for column in condition_columns(names, labels, lambda line: line[0].condition) if column.name != RATE),
        *map(exponent, AXES),
        Column("width", lambda line: line[1].width),
        Column("horizon", lambda line: line[1].horizon),
        Column("seeds", lambda line: line[0].seeds, views=EXPORTED),
        Column("constant", lambda line: line[0].constant, views=EXPORTED),
        Column("gain", lambda line: line[0].gain, ends=True, views=EXPORTED),
        Column("predicted rate", lambda line: line[1].predicted, key="predicted", ends=True),
        Column("best rate", lambda line: line[1].best, key="best", ends=True),
        Column("best / predicted", lambda line: line[1].off, key="best_over_predicted", ends=True),
        Column("loss / least loss", lambda line: line[1].ratio, key="loss_ratio", ends=True),
        Column("at an end", lambda line: line[1].at_end, cell=_at_end_cell, key="at_end", unit="seeds", optional=True),
    ]
    lines = [(rule, size) for rule in rules for size in rule.held_out]
    return Table(
        "rate_rule", "Learning-rate rule", lines, [c for c in columns if c.name not in ("memory", "under")], heading
    )


_LETTERS = (("width", "m"), ("horizon", "T"))


def _exponent_text(exponent: Slope) -> str:
    """In brackets with its interval; a dash where the seeds have none."""
    return "–" if math.isnan(exponent.estimate) else f"({slope_text(exponent)})"


def _at_end_cell(line: tuple[RateRule, HeldOut]) -> Cell:
    rule, size = line
    return Cell(f"{size.at_end} of {rule.seeds}" if size.at_end else "", tone="bad")


def ceiling_table(rows: Sequence[RateCeiling], names: Sequence[str], labels: Labels) -> Table[RateCeiling]:
    """The learning-rate ceiling of each condition beside its prediction; the CSV file has a row per seed."""
    names = [name for name in names if name != RATE]
    columns: list[Column[RateCeiling]] = [
        *condition_columns(names, labels.without(RATE)),
        Column("width", lambda row: row.width, varies=True),
        Column("horizon", lambda row: row.horizon, varies=True),
        Column("a rate trains", lambda row: _of(row.seeds["ceiling"].count(), row), unit="seeds"),
        Column("ceiling", lambda row: Spread.of(row.seeds["ceiling"]), cell=_ceiling_cell),
        Column("fails at", lambda row: Spread.of(row.seeds["fails"]), cell=_fails_cell, optional=True),
        Column("gradient / weight", lambda row: Spread.of(row.seeds[CRITERIA[0]]), optional=True),
        Column("predicted", lambda row: Spread.of(row.predicted), optional=True),
        Column("predicted within", lambda row: _of(row.bracketed, row), unit="seeds"),
    ]
    if not _predicts(rows):
        del columns[-1]
    parts = [
        row.seeds.assign(
            **{name: row.condition[name] for name in names},
            width=row.width,
            horizon=row.horizon,
            predicted=row.predicted,
        ).reset_index()
        for row in rows
    ]
    stored = [*names, "width", "horizon", "seed", "ceiling", "fails", *CRITERIA, "predicted"]
    frame = pd.concat(parts, ignore_index=True)[stored] if parts else pd.DataFrame(columns=stored)
    return Table("ceilings", "Learning-rate ceilings", rows, columns, stored=frame)


def _predicts(rows: Sequence[RateCeiling]) -> bool:
    """Whether a condition has a ceiling between two rates, from which c follows."""
    return not all(math.isnan(row.scale) for row in rows)


def _ceiling_cell(row: RateCeiling) -> Cell:
    """At least a rate where a seed that trains at it, or below, failed at none."""
    ceilings = row.seeds["ceiling"]
    least = ceilings[row.seeds["fails"] == math.inf].min()
    return spread_cell(Spread.of(ceilings), lambda rate: f"≥ {figure(rate)}" if rate >= least else figure(rate))


def _fails_cell(row: RateCeiling) -> Cell:
    return spread_cell(Spread.of(row.seeds["fails"]), lambda rate: figure(rate) if math.isfinite(rate) else NOTHING)


def ceilings_mean(rows: Sequence[RateCeiling]) -> str:
    """The meaning of the columns of ``ceiling_table``, and how the predictions rank the conditions."""
    said = [CEILINGS_MEAN, *([PREDICTED_MEANS] if _predicts(rows) else [])]
    correlations = rank_correlations(rows)
    for memory, by_criterion in correlations.items():
        texts = [
            f"{interval(one.estimate, one.low, one.high, 2)} by the {criterion_word(name)} ({one.seeds} seeds)"
            for name, one in by_criterion.items()
        ]
        of = f" of {memory}" if len(correlations) > 1 else ""
        said.append(f"Kendall's rank correlation of ceiling and prediction over the conditions{of}: {joined(texts)}.")
    return " ".join(said)


def _of(count: int, row: RateCeiling) -> str:
    return f"{count} of {len(row.seeds)}"
