"""Verdicts, their slopes and the fits that they rest on, as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from memsweep.report.analysis.bounds import EXPLANATIONS, MARK
from memsweep.report.analysis.findings import BALLS, Finding
from memsweep.report.analysis.summary import MOVES
from memsweep.report.naming.conditions import plain_value
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import number, percent, show, slope_text
from memsweep.report.rows.table import (
    CSV,
    EXPORTED,
    NOTHING,
    PAGE,
    SHOWN,
    Cell,
    Column,
    Table,
    condition_columns,
    slope_cell,
)

MANY = 12
"""Verdicts of one ball that can be read as a plain list."""
SIGNS = {"stable": "●", "unstable": "▲", "inconclusive": "◇"}
_LETTERS = {"horizon": "T", "width": "m"}
_RADII = ("threshold", "radius", "radius_low", "radius_high", "censored", "valid", "error_at_zero", "zero_loss")


def moving(ball: str) -> str:
    """``When the recurrent weights move``."""
    return f"When {MOVES[ball]}"


def reasons(finding: Finding) -> tuple[str, ...]:
    """Why the verdict is what it is, and that it rests on lower bounds of the error where it does."""
    bound = (f"errors: {EXPLANATIONS[finding.bound]}",) if finding.bound else ()
    return (*finding.judgement.reasons, *bound)


def verdict_cell(finding: Finding) -> Cell:
    """The verdict as a word."""
    judgement = finding.judgement
    word, dagger = judgement.verdict.value, MARK if finding.bound else ""
    return Cell(
        text=word,
        tone=word,
        marked=True,
        hint=judgement.verdict.explanation,
        bound=EXPLANATIONS.get(finding.bound, ""),
        notes=(("horizon-limited", ""),) if judgement.horizon_limited else (),
        terminal=(f"{SIGNS[word]} {word}{dagger}",),
    )


def short_verdict_cell(finding: Finding) -> Cell:
    """The verdict with the slope that it rests on, for tables of many."""
    cell = verdict_cell(finding)
    axis, slope = finding.deciding
    sign, letter = f"{SIGNS[cell.text]}{MARK if cell.bound else ''}", _LETTERS[axis]
    forms = (f"{sign} {letter} {slope_text(slope)}", f"{sign} {letter} {number(slope.estimate)}", sign)
    if not slope.available:
        forms = (f"{sign} no slope", f"{sign} no slope", sign)
    said = f"{axis} {slope_text(slope)}" if slope.available else slope_text(slope)
    return Cell(
        cell.text, cell.tone, True, cell.hint, cell.bound, notes=((said, "nowrap"), *cell.notes), terminal=forms
    )


def verdict_columns(names: Sequence[str], labels: Labels) -> list[Column[Finding]]:
    """The columns of ``verdicts.csv``, and those of its readers."""
    return [
        *condition_columns(names, labels),
        Column("ball", lambda f: f.ball, views=EXPORTED),
        Column("verdict", lambda f: f.judgement.verdict.value, cell=verdict_cell),
        *_slopes(lambda f: f.judgement.slope_horizon, lambda f: f.judgement.slope_width),
        Column("at error", lambda f: f.judgement.threshold, percent, key="threshold", unit="of L₀"),
        Column("deciding", lambda f: f.deciding[0], views=EXPORTED),
        Column(
            "reasons",
            lambda f: "; ".join(reasons(f)),
            cell=lambda f: Cell("", items=reasons(f)),
            views=frozenset({PAGE, CSV}),
            style="reasons",
        ),
    ]


def verdict_table(findings: Sequence[Finding], names: Sequence[str], labels: Labels) -> Table[Finding]:
    """Every verdict, by ball."""
    columns = verdict_columns(names, labels)
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

    def evidence(name: str, value: Any, **more: Any) -> Column[tuple[Finding, float]]:
        return Column(name, lambda row: value(row[0]), once=True, **more)

    columns = [
        evidence("ball", lambda f: f.ball),
        *condition_columns(names, labels, lambda row: row[0].condition),
        Column("at error", lambda row: row[1], percent, key="threshold", unit="of L₀"),
        *_slopes(lambda row: row[0].judgement.by_threshold[row[1]][1], lambda r: r[0].judgement.by_threshold[r[1]][0]),
        evidence("growth of the error with width", lambda f: f.judgement.growth, key="growth", ends=True),
        evidence("modulus", lambda f: f.judgement.modulus),
        evidence("g(β₁)", lambda f: f.analytic_modulus, key="analytic_modulus"),
        evidence("out of reach", lambda f: f.distance_bound, form=_share, key="out_of_reach"),
    ]
    return Table("slopes", "Slopes at every threshold", rows, columns)


def radii_table(findings: Sequence[Finding], names: Sequence[str]) -> pd.DataFrame:
    """``radii.csv``: a row per trial, seed, ball and threshold."""
    columns = ["identity", *names, "width", "horizon", "seed", "ball", *_RADII]
    parts = [finding.radii.assign(ball=finding.ball, **finding.condition) for finding in findings]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


@dataclass(frozen=True)
class Fit:
    """The trained seeds of a condition and horizon."""

    condition: Mapping[str, Any]
    horizon: Any
    seeds: pd.DataFrame


def fit_table(findings: Sequence[Finding], labels: Labels) -> Table[Fit]:
    """The unperturbed error relative to the zero predictor, per horizon and width."""
    rows = []
    for finding in {finding.key: finding for finding in reversed(findings)}.values():
        seeds = finding.radii.drop_duplicates(["width", "horizon", "seed"])
        parts = seeds.groupby("horizon", dropna=False)
        rows.append([Fit(finding.condition, plain_value(horizon), part) for horizon, part in parts])
    widths = sorted({float(w) for fits in rows for fit in fits for w in fit.seeds["width"].dropna()})
    columns: list[Column[Fit]] = [
        *condition_columns((), labels),
        Column("horizon", lambda fit: fit.horizon, show, views=SHOWN),
        *(_fit_column(width) for width in widths),
    ]
    return Table("fit", "Error without perturbation", [fit for fits in reversed(rows) for fit in fits], columns)


def _fit_column(width: float) -> Column[Fit]:
    def cell(fit: Fit) -> Cell:
        seeds = fit.seeds[fit.seeds["width"] == width]
        if seeds.empty:
            return Cell(NOTHING)
        valid, count = int(seeds["valid"].astype(bool).sum()), len(seeds)
        text = percent(float((seeds["error_at_zero"] / seeds["zero_loss"]).median()))
        if valid == count:
            return Cell(text)
        return Cell(text, tone="bad", notes=((f"✗ {valid} of {count} seeds valid", ""),))

    return Column(f"width {width:g}", lambda fit: fit.seeds, cell=cell, views=SHOWN)


def _slopes(horizon: Any, width: Any) -> list[Column[Any]]:
    def column(axis: str, slope: Any) -> Column[Any]:
        return Column(f"slope in {axis}", slope, cell=lambda r: slope_cell(slope(r)), key=f"slope_{axis}", ends=True)

    return [column("horizon", horizon), column("width", width)]


def _share(value: float) -> str:
    return percent(value) if math.isfinite(value) else NOTHING
