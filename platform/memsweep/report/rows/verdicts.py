"""Verdicts and their slopes as tables, and the words that every view of them shares."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from memsweep.config.schema.trial import ERROR, EXCESS, METRIC, SELF, TARGET
from memsweep.report.analysis.bounds import EXPLANATIONS, MARK, MARKED, of_valid
from memsweep.report.analysis.contents import BALLS, Finding
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import figure, joined, limit, number, percent, slope_text
from memsweep.report.read.study import Study
from memsweep.report.values.table import EXPORTED, NOTHING, PAGE, SHOWN, Cell, Column, Table, condition_columns
from memsweep.stability.verdict.judgement import DEFAULT, Criteria, Trends
from memsweep.stability.verdict.lacks import shows_unstable_alone
from memsweep.stability.verdict.radius import INTERPOLATED
from memsweep.stability.verdict.trend import Trend

MOVES = {
    "recurrent": "the recurrent weights move",
    "weights": "all weights but the biases move",
    "all": "all weights move",
}
NOT_ASKED = "No verdict: this study asks no question of stability."
CHOSEN_LATER = "chosen after the results were seen, so that the error rates of the rule do not hold for these verdicts"


def judged(criteria: Criteria) -> str:
    """The sentence that goes with verdicts of another rule than the usual one; empty for the usual one."""
    if criteria == DEFAULT:
        return ""
    return (
        f"Judged again from the stored results, at thresholds of {_listed(criteria.thresholds)} and a slope "
        f"limit of {limit(criteria.slope_limit)} (the rule: "
        f"{_listed(DEFAULT.thresholds)} and {limit(DEFAULT.slope_limit)}): {CHOSEN_LATER}. Worst pushes were "
        f"searched at {_listed(DEFAULT.thresholds)}."
    )


def _listed(thresholds: Sequence[float]) -> str:
    return joined([percent(threshold) for threshold in thresholds])


MANY = 12
"""Verdicts of one ball that can be read as a plain list."""
SIGNS = {"stable": "●", "unstable": "▲", "inconclusive": "◇"}
SIGNS_KEY = "  ".join(f"{sign} {word}" for word, sign in SIGNS.items())
SHORT_KEY = f"{SIGNS_KEY}   T, m: the deciding slope of the radius, with horizon or width"
"""What the signs of verdicts mean, and the letters beside them."""
SHORT = (
    f"a stronger search found more: this one had found less than {percent(MARKED)} of its largest change, so that "
    "the true radius is smaller"
)
"""What the mark says."""
LETTERS = {"horizon": "T", "width": "m"}
_RADII = ("threshold", "radius", "radius_low", "radius_high", "censored", "valid", "error_at_zero", "zero_loss")
_KNOWN = ("how", "reading")
"""How a radius is known, and what it was read from."""
_READ = {
    EXCESS: "the growth of the error, not from the drift",
    ERROR: "the error, that of the fit included, not from the drift",
}

REFERENCES = {
    TARGET: (
        "by the loss: how far outputs move, as a share of the zero predictor's loss, of models that fit their target"
    ),
    METRIC: (
        "by the metric: how many more answers are wrong at the worst push found for the loss, as a share of the way to "
        "chance, of models that solve their task"
    ),
    SELF: (
        "by the model itself: how far outputs drift from its own, as a share of their variance; this says what moves "
        "the function, and nothing about a target"
    ),
}
"""The three readings of a verdict (``perturbation.reference``)."""
_OF = {TARGET: "of L₀", METRIC: "of the way to chance", SELF: "of the variance of outputs"}


def share_of(findings: Iterable[Finding]) -> str:
    """What the thresholds of these verdicts are shares of; words that hold for all of several readings."""
    found = {finding.reference for finding in findings} or {TARGET}
    return _OF[found.pop()] if len(found) == 1 else "of the reference"


def referred(findings: Sequence[Finding]) -> str:
    """The sentence that says of which readings these verdicts are; empty without a verdict."""
    found = {finding.reference for finding in findings}
    said = [words for name, words in REFERENCES.items() if name in found]
    return f"Verdicts are {'. Others are '.join(said)}." if said else ""


def moving(ball: str) -> str:
    """``When the recurrent weights move``."""
    return f"When {MOVES[ball]}"


def reasons(finding: Finding, study: Study | None = None, *, waits: bool = False) -> str:
    """Why the verdict is what it is, and what its errors are.

    Args:
        finding: with the verdict.
        waits: whether planned trials are still to come. They may decide what more would be advised for, so that nothing
            is.
        study: whose command names what would decide. None: the words that it would have, so that the text, as that of
            a CSV file, depends on the results alone and not on where the study's file lies.
    """
    judgement = finding.judgement
    first, *others = judgement.extend or ("",)
    command = f"extend it by {first}" if study is None else study.extended_by(first)
    ways = [command, *others] if command.endswith(first) else [command]  # other words of the same command
    prompt = "may show unstable, not stable" if shows_unstable_alone(judgement.lacks) else "to decide"
    advice = (f"{prompt}: {', or '.join(ways)}",) if command and first and not waits else ()
    read = () if finding.reference == TARGET else (f"verdict {REFERENCES[finding.reference]}",)
    about = (*read, f"errors: {EXPLANATIONS[finding.bound]}", *_how(finding), *_shortfall(finding))
    return "; ".join((*advice, *judgement.reasons, *about))


def _shortfall(finding: Finding) -> Iterator[str]:
    """What a stronger search says about the errors, where one ran."""
    if math.isnan(finding.found_share):
        return
    every, checked = finding.curves, finding.curves.dropna(subset="stronger")
    ran = f"{checked['seed'].nunique()} of {every['seed'].nunique()} seeds"
    here, sizes = (len(curves.drop_duplicates(["width", "horizon"])) for curves in (checked, every))
    ran += f" at {here} of {sizes} sizes" if here < sizes else ""
    fitting = of_valid(every, finding.radii).dropna(subset="stronger")
    where = " in models that fit" if len(fitting) < len(checked) else ""
    yield (
        f"where a search of several times the effort ran ({ran}), this one had found at least "
        f"{math.floor(1000 * finding.found_share + 1e-6) / 10:g} % of the largest change{where}"
    )
    if finding.otherwise is not None:
        yield f"if every error were as short of the worst, the verdict would be {finding.otherwise.value}"


def _how(finding: Finding) -> Iterator[str]:
    """What radii were read from, where it was not the drift; and that it was between two points, where it was."""
    read = [_READ[name] for name in _READ if (finding.radii["reading"] == name).any()]
    if read:
        yield f"radii: read from {', or from '.join(read)}"
    if (measured(finding.radii)["how"] == INTERPOLATED).any():
        yield "radii: interpolated between measured points, so that each may lie anywhere between its two"


def measured(radii: pd.DataFrame) -> pd.DataFrame:
    """Those of models that did not diverge: the others have none, and the smallest that was tried stands for it."""
    return radii[np.isfinite(radii["radius"].astype(float)) & np.isfinite(radii["error_at_zero"].astype(float))]


def short_verdict_cell(finding: Finding) -> Cell:
    """The verdict's sign with the slope that it rests on, for tables of many."""
    word, (axis, slope) = finding.judgement.verdict.value, finding.deciding
    sign, letter = SIGNS[word] + (MARK if finding.marked else ""), LETTERS[axis]
    if not slope.available:
        return Cell(f"{sign} no slope", word, shorter=(f"{sign} no slope", sign))
    shorter = (f"{sign} {letter} {number(slope.estimate)}", sign)
    return Cell(f"{sign} {letter} {slope_text(slope)}", word, shorter=shorter)


def _verdict_cell(finding: Finding) -> Cell:
    word = finding.judgement.verdict.value
    return Cell(f"{SIGNS[word]} {word}{MARK if finding.marked else ''}", word)


def waits(study: Study) -> bool:
    """Whether planned trials of a study are still to come; a search plans its trials as it goes."""
    return study.is_unfinished and study.search is None


def verdict_columns(
    names: Sequence[str], labels: Labels, *, share: str = "", wait: bool = False
) -> list[Column[Finding]]:
    """The columns of ``verdicts.csv``, and those of its readers.

    Args:
        share: ``share_of`` the verdicts; no file has it.
        wait: planned trials are still to come.
    """
    return [
        *condition_columns(names, labels),
        Column("ball", lambda f: f.ball, views=EXPORTED),
        Column("reference", lambda f: f.reference, views=EXPORTED),
        Column("verdict", lambda f: f.judgement.verdict.value, cell=_verdict_cell),
        Column("slope in horizon", lambda f: f.judgement.slope_horizon, key="slope_horizon", ends=True),
        Column("slope in width", lambda f: f.judgement.slope_width, key="slope_width", ends=True),
        Column("at error", lambda f: f.judgement.threshold, percent, key="threshold", unit=share),
        Column("deciding", lambda f: f.deciding[0], views=EXPORTED),
        Column("largest width", lambda f: f.judgement.largest_width, key="largest_width", views=EXPORTED),
        Column("fit error", lambda f: f.judgement.fit_error, percent, key="fit_error", views=EXPORTED),
        Column("rule_version", lambda f: f.judgement.rule_version, views=EXPORTED),
        Column("found of the largest change", lambda f: f.found_share, _share, key="found_share", views=EXPORTED),
        Column("reasons", lambda f: reasons(f, waits=wait), views=EXPORTED),
    ]


def verdict_table(findings: Sequence[Finding], names: Sequence[str], labels: Labels, study: Study) -> Table[Finding]:
    """Every verdict, by ball."""
    wait = waits(study)
    said = Column[Finding]("reasons", lambda f: reasons(f, study, waits=wait), views=frozenset({PAGE}), style="reasons")
    columns = [*verdict_columns(names, labels, share=share_of(findings), wait=wait), said]
    return Table("verdicts", "Verdicts", findings, columns, lambda f: f"{moving(f.ball)} (ball: {f.ball})")


@dataclass(frozen=True)
class Machine:
    """A line of an overview: a machine, its family, and a finding per memory."""

    family: str
    member: str
    findings: Mapping[str, Finding]


def overviews(findings: Sequence[Finding], labels: Labels) -> list[Table[Machine]]:
    """Per ball, machines by family down and memories across."""
    tables = []
    for ball in BALLS:
        part = [finding for finding in findings if finding.ball == ball]
        memories = dict.fromkeys(labels.memory(finding.condition) for finding in part)
        by_name = {(labels.machine(f.condition), labels.memory(f.condition)): f for f in part}
        rows = [
            Machine(family, member, {m: by_name[machine, m] for m in memories if (machine, m) in by_name})
            for family, members in labels.families(finding.condition for finding in part)
            for machine, member in members
        ]
        columns = [Column[Machine]("under", lambda row: row.member, views=SHOWN, style="name")]
        columns += [_overview_column(memory) for memory in memories]
        if rows:
            tables.append(Table(f"overview-{ball}", moving(ball), rows, columns, lambda row: row.family))
    return tables


def _overview_column(memory: str) -> Column[Machine]:
    def cell(row: Machine) -> Cell:
        return short_verdict_cell(row.findings[memory]) if memory in row.findings else Cell(NOTHING)

    return Column(memory, lambda row: row.findings.get(memory), cell=cell, views=SHOWN, style="")


def slope_table(findings: Sequence[Finding], names: Sequence[str], labels: Labels) -> Table[tuple[Finding, float]]:
    """Every slope at every threshold, and the evidence that does not decide."""
    rows = [(finding, threshold) for finding in findings for threshold in finding.judgement.by_threshold]
    columns: list[Column[tuple[Finding, float]]] = [
        Column("ball", lambda row: row[0].ball),
        *condition_columns(names, labels, lambda row: row[0].condition),
        Column("at error", lambda row: row[1], percent, key="threshold", unit=share_of(findings)),
        Column("slope in horizon", lambda row: _trends(row).horizon.limit, key="slope_horizon", ends=True),
        Column("slope in width", lambda row: _trends(row).along_width, key="slope_width", ends=True),
        Column("local slopes in horizon", lambda row: _local(_trends(row).horizon), key="local_slopes_horizon"),
        Column("slope over all horizons", lambda row: _trends(row).horizon.over_range, key="range_horizon", ends=True),
        Column("local slopes in width", lambda row: _local(_trends(row).width), key="local_slopes_width"),
        Column("growth of the drift with width", lambda row: row[0].judgement.growth, key="growth", ends=True),
        Column("modulus", lambda row: row[0].judgement.modulus),
        Column("g(β₁)", lambda row: row[0].analytic_modulus, key="analytic_modulus"),
        Column("out of reach", lambda row: row[0].distance_bound, _share, key="out_of_reach"),
    ]
    return Table("slopes", "Slopes at every threshold", rows, columns)


def _trends(row: tuple[Finding, float]) -> Trends:
    finding, threshold = row
    return finding.judgement.by_threshold[threshold]


def _local(trend: Trend) -> str:
    return "  ".join(map(number, trend.local)) or NOTHING


def radii_table(findings: Sequence[Finding]) -> pd.DataFrame:
    """A row per trial, seed, ball and threshold; ``radii.csv`` has the settings of the trial as well."""
    columns = ["identity", "width", "horizon", "seed", "ball", *_RADII, *_KNOWN]
    parts = [finding.radii.assign(ball=finding.ball) for finding in findings]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def radius_lines(radii: pd.DataFrame, curves: pd.DataFrame) -> Iterator[str]:
    """The radii of one trial, a sentence for each reference and ball: of several seeds the least and the largest.

    Args:
        radii: rows of ``radii_table``.
        curves: rows of the trial in the table, which names the norms.
    """
    yield from (f"radii {REFERENCES[name]}" for name in radii["reading"].unique() if name in REFERENCES)
    for ball, own in radii.groupby("ball", sort=False):
        levels = [(level, own[own["threshold"] == level]) for level in sorted(own["threshold"].unique())]
        found = ", ".join(f"{_ends(seeds)} at {percent(level)}" for level, seeds in levels)
        norm = curves.loc[curves["ball"] == ball, "norm"].iloc[0]
        yield f"radius when {MOVES[str(ball)]} (ball {ball}, norm {norm}): {found}"


def _ends(seeds: pd.DataFrame) -> str:
    """The radius at a threshold; a bound where no radius that was tried reaches it."""
    ordered = seeds.sort_values("radius")
    marked = zip(ordered["censored"], ordered["radius"], strict=True)
    texts = [f"{mark} {figure(radius)}".strip() for mark, radius in marked]
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"


def _share(value: float) -> str:
    return percent(value) if math.isfinite(value) else NOTHING
