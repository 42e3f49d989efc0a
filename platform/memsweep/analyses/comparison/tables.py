"""Studies side by side, as tables: verdicts with the differences of their slopes, final losses, differing settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from memsweep.analyses.comparison.compare import ComparedLoss, ComparedVerdict, DifferingSetting, StudyComparison
from memsweep.errors import counted
from memsweep.report.analysis.bounds import MARK
from memsweep.report.analysis.losses import Ratio, Spread
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import figure, interval, joined, number, percent, show, slope_text
from memsweep.report.rows.verdicts import SHORT, SIGNS, moving
from memsweep.report.values.table import EXPORTED, NOTHING, Cell, Column, Table, spread_text
from memsweep.stability.verdict.judgement import Verdict
from memsweep.stability.verdict.trend import NO_SLOPE, Slope

_LETTERS = {"horizon": "T", "width": "m"}
_SAME, _SAME_WEIGHTS, _EQUAL = "same trials", "same weights", "equal"
_MOST_VALUES, _MOST_NAMED = 6, 4

Row = ComparedVerdict | ComparedLoss


def sentences(comparison: StudyComparison, letters: Mapping[str, str]) -> list[str]:
    """The findings of a comparison and their uncertainty."""
    shared = comparison.conditions()
    counts = [f"{counted(len(shared), 'condition')} in more than one study"]
    for name in comparison.names:
        if alone := comparison.conditions(name):
            counts.append(f"{len(alone)} in {letters[name]} alone")
    found = [f"{', '.join(counts)}.", *_changed(comparison)]
    apart = [row for row in comparison.verdicts if row.difference is not None and row.difference.apart]
    compared = [row for row in comparison.verdicts if row.difference and row.difference.available and not row.same]
    if compared:
        found.append(
            f"The interval of the difference leaves 0 out in {len(apart)} of {counted(len(compared), 'slope')} that "
            f"{'was' if len(compared) == 1 else 'were'} compared. Intervals are 95 % each and not corrected for their "
            f"number: of {len(compared)}, {0.05 * len(compared):.2g} would leave 0 out by chance."
        )
    return [*found, *_of_same_weights(comparison, letters), *_uncertain(comparison, letters)]


def _of_same_weights(comparison: StudyComparison, letters: Mapping[str, str]) -> Iterator[str]:
    """The studies whose losses are those of one training."""
    pairs: dict[str, dict[str, dict[tuple[Any, ...], bool]]] = {}  # reference -> study -> condition -> the same weights
    for row in comparison.losses:
        if row.study != (reference := row.studies[0]):
            found = pairs.setdefault(reference, {}).setdefault(row.study, {})
            found[tuple(row.condition.values())] = row.same_weights
    for reference, others in pairs.items():
        groups: dict[frozenset[tuple[Any, bool]], list[str]] = {}
        for study, found in others.items():
            groups.setdefault(frozenset(found.items()), []).append(letters[study])
        for conditions, named in groups.items():
            if alike := sum(same for _, same in conditions):
                of = len(conditions)
                some, there = (f" in {alike} of {of} conditions", " there") if alike < of else ("", "")
                studies = joined([letters[reference], *named])
                yield f"{studies} have the same trained weights{some}: losses are not compared{there}."


def _changed(comparison: StudyComparison) -> list[str]:
    """The conditions and balls whose verdicts differ."""
    verdicts: dict[tuple[Any, ...], list[ComparedVerdict]] = {}
    for row in comparison.verdicts:
        if len(row.studies) > 1:
            verdicts.setdefault((tuple(row.condition.values()), row.finding.ball), []).append(row)
    if not verdicts:
        return []
    changed = [rows for rows in verdicts.values() if len({row.finding.judgement.verdict for row in rows}) > 1]
    found = {row.finding.judgement.verdict for rows in verdicts.values() for row in rows}
    if found == {Verdict.INCONCLUSIVE}:
        return ["What the studies share is inconclusive in all of them."]
    if not changed:
        return ["The shared verdict agrees." if len(verdicts) == 1 else f"All {len(verdicts)} shared verdicts agree."]
    named = [_heading(comparison.labels, rows[0].condition, rows[0].finding.ball) for rows in changed[:_MOST_NAMED]]
    more = f" and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
    text = f"Of {counted(len(verdicts), 'shared verdict')}, {len(changed)} differ: {'; '.join(named)}{more}."
    if any(row.finding.judgement.verdict is Verdict.INCONCLUSIVE for rows in changed for row in rows):
        text += " Inconclusive beside a verdict is no contradiction."
    return [text]


def _uncertain(comparison: StudyComparison, letters: Mapping[str, str]) -> list[str]:
    shared = [row for row in comparison.verdicts if row.difference is not None]
    parts = []
    if any(not row.difference.paired and row.difference.available for row in shared if row.difference):
        parts.append("studies with fewer than 5 seeds in common are compared as independent samples")
    if any(row.difference is not None and not row.difference.available for row in shared):
        parts.append("without a slope in both studies there is no difference")
    if shared:
        parts.append("an interval holds what differs between seeds, and nothing that all seeds of a study share")
    if any(row.finding.marked for row in comparison.verdicts):
        parts.append(f"{MARK} {SHORT}, and a difference may come from the search")
    missing = [
        f"{letters[name]} lacks {len(each.study.missing)} of {each.study.planned} trials"
        for name, each in comparison.contents.items()
        if each.study.missing
    ]
    parts += [f"{joined(missing)}: verdicts may change"] if missing else []
    return [f"{part[:1].upper()}{part[1:]}." for part in parts]


def _heading(labels: Labels, condition: Mapping[str, Any], ball: str = "") -> str:
    memory, machine = labels.names(condition)
    return f"{memory}, {machine}" + (f", {moving(ball)[:1].lower()}{moving(ball)[1:]}" if ball else "")


def _grouped(comparison: StudyComparison, letters: Mapping[str, str]) -> Callable[[Any], str]:
    def heading(row: Row) -> str:
        ball, at = (row.finding.ball, row.threshold) if isinstance(row, ComparedVerdict) else ("", math.nan)
        heading = _heading(comparison.labels, row.condition, ball) + (f", at {percent(at)} error" if ball else "")
        return heading + (f" ({letters[row.study]} alone)" if len(row.studies) == 1 else "")

    return heading


def _condition_columns(comparison: StudyComparison, letters: Mapping[str, str]) -> list[Column[Any]]:
    def exported(name: str) -> Column[Any]:
        return Column(name, lambda row: row.condition[name], views=EXPORTED)

    def study(row: Row) -> Cell:
        return Cell(f"{letters[row.study]}  {row.study}", shorter=(letters[row.study],))

    return [*map(exported, comparison.columns), Column("study", lambda row: row.study, cell=study)]


def verdict_table(comparison: StudyComparison, letters: Mapping[str, str]) -> Table[ComparedVerdict]:
    """Every verdict beside the slope of its study and its difference from that of the reference."""
    columns: list[Column[ComparedVerdict]] = [
        *_condition_columns(comparison, letters),
        Column("ball", lambda row: row.finding.ball, views=EXPORTED),
        Column("verdict", lambda row: row.finding.judgement.verdict.value, cell=_verdict_cell),
        Column("slope", lambda row: row.slope, cell=_slope_cell, ends=True),
        Column("along", lambda row: row.axis, views=EXPORTED),
        Column("threshold", lambda row: row.threshold, views=EXPORTED),
        Column("rule_version", lambda row: row.finding.judgement.rule_version, views=EXPORTED),
        Column("difference", _difference, cell=_difference_cell, key="slope_difference", ends=True),
        Column("paired", lambda row: row.difference.paired if row.difference else None, views=EXPORTED),
        Column("seeds", _seeds, key="seeds", views=EXPORTED),
        Column("seeds_of_reference", lambda row: row.difference.seeds[0] if row.difference else None, views=EXPORTED),
    ]
    return Table("verdicts", "Verdicts", comparison.verdicts, columns, _grouped(comparison, letters))


def _verdict_cell(row: ComparedVerdict) -> Cell:
    word = row.finding.judgement.verdict.value
    return Cell(f"{SIGNS[word]} {word}{MARK if row.finding.marked else ''}", word)


def _slope_cell(row: ComparedVerdict) -> Cell:
    if not row.slope.available:
        return Cell("no slope")
    letter = _LETTERS[row.axis]
    return Cell(f"{letter} {slope_text(row.slope)}")


def _difference(row: ComparedVerdict) -> Slope:
    known = row.difference
    return Slope(known.estimate, known.low, known.high) if known is not None else NO_SLOPE


def _difference_cell(row: ComparedVerdict) -> Cell:
    if row.same:
        return Cell(_SAME)
    if row.difference is None or not row.difference.available:
        return Cell("" if row.difference is None else NOTHING)
    estimate, low, high = (row.difference.estimate, row.difference.low, row.difference.high)
    return Cell(f"{number(estimate)} [{number(low)}, {number(high)}]", "apart" if row.difference.apart else "")


def _seeds(row: ComparedVerdict) -> int:
    return row.difference.seeds[1] if row.difference is not None else len(row.slope.by_seed)


def loss_table(comparison: StudyComparison, letters: Mapping[str, str]) -> Table[ComparedLoss]:
    """The losses at the largest common size, and their ratios to those of the reference."""
    columns: list[Column[ComparedLoss]] = [
        *_condition_columns(comparison, letters),
        Column("width", lambda row: row.row.width if row.row else None, varies=True),
        Column("horizon", lambda row: row.row.horizon if row.row else None, varies=True),
        Column("loss", _loss, cell=_loss_cell, ends=True),
        Column("ratio", lambda row: Ratio(*row.ratio), cell=_ratio_cell, key="loss_ratio", ends=True),
        Column("paired", lambda row: row.log_difference.paired if row.log_difference else None, views=EXPORTED),
        Column("seeds", lambda row: row.row.seeds if row.row else None, views=EXPORTED),
        Column("diverged", lambda row: row.row.diverged if row.row else None, _some, unit="seeds", optional=True),
    ]
    return Table("losses", "Final losses", comparison.losses, columns, _grouped(comparison, letters))


def _loss(row: ComparedLoss) -> Spread:
    return row.row.loss if row.row is not None else Spread(math.nan, math.nan, math.nan)


def _loss_cell(row: ComparedLoss) -> Cell:
    if row.row is None:
        return Cell("no common size")
    return Cell(spread_text(row.row.loss), shorter=(figure(row.row.loss.middle),))


def _ratio_cell(row: ComparedLoss) -> Cell:
    if row.same_weights:
        return Cell(_SAME if row.same else _SAME_WEIGHTS)
    estimate, low, high = row.ratio
    if row.log_difference is None or not row.log_difference.available:
        return Cell("" if row.log_difference is None else NOTHING)
    text = _EQUAL if row.log_difference.is_none else f"× {interval(estimate, low, high)}"
    return Cell(text, "apart" if row.log_difference.apart else "")


def _some(count: int | None) -> str:
    return str(count) if count else ""


def setting_table(comparison: StudyComparison, letters: Mapping[str, str]) -> Table[DifferingSetting]:
    """The settings that differ, with a column for each study."""

    def of_study(name: str) -> Column[DifferingSetting]:
        return Column(letters[name], lambda row: _listed(row.values[name]), key=name, style="")

    columns = [Column[DifferingSetting]("setting", lambda row: row.path, style="name")]
    columns += [of_study(name) for name in comparison.names]
    return Table("settings", "Settings that differ", comparison.settings, columns)


def _listed(values: Sequence[Any]) -> str:
    texts = [show(value) for value in values[:_MOST_VALUES]]
    more = len(values) - _MOST_VALUES
    return (", ".join(texts) + (f" and {more} more" if more > 0 else "")) or NOTHING
