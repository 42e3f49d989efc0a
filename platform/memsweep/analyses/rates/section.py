"""The section of learning rates across sizes: the rule with its sentence and metrics, and the ceilings."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from memsweep.analyses.rates.ceilings import rate_ceilings
from memsweep.analyses.rates.charts import rate_charts
from memsweep.analyses.rates.curves import RateStudy, rate_of, rate_studies
from memsweep.analyses.rates.rule import RateRule, rate_rules
from memsweep.analyses.rates.tables import RULES_MEAN, ceiling_table, ceilings_mean, rule_table
from memsweep.config.schema.search import GRID, NONE
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import LossRow
from memsweep.report.naming.conditions import RATE, Labels
from memsweep.report.naming.numbers import figure, joined, with_interval
from memsweep.report.values.section import Place, Rank, Section, slope_metrics
from memsweep.report.values.table import CSV, PAGE, TERMINAL

_MOST_LINES = 6  # conditions that one sentence compares
_CURVES = (
    "Test loss against the learning rate: medians over seeds, bands from the best seed to the worst. Rates at which "
    "seeds diverged are listed below a chart. Gradient over weight: the largest |gradient| / |weight| of a recurrent "
    "weight over training, which a stable parameterization keeps bounded."
)
_SCANNED = (
    "These are all suggestions of the search, on its own seeds: the least of each line is the best of several, and so "
    "too good. Winners on fresh seeds stand above."
)


def sections(contents: Contents) -> list[Section]:
    """The curves of the loss against the rate, the rule across sizes, and the ceilings of the curves."""
    names, labels = contents.grouping.columns, contents.labels
    rates, scanned = rate_studies(contents.trained, labels), scans(contents)
    rules, ceilings = rate_rules(tried(contents)), rate_ceilings(rates)
    rule, highest = rule_table(rules, names, labels), ceiling_table(ceilings, names, labels)
    said = _sentences(rules, labels.without(RATE))[:1] or [*filter(None, [best_rates(rates)])]
    varied = {identity for one in rates for rows in one.lines.values() for row in rows for identity in row.identities}
    return [
        Section(
            "Learning rates",
            _CURVES,
            charts=[*rate_charts([*rates, *scanned])],
            answer=said if rates else (),
            # where some models have one rate, their ranking tells of all
            rank=Rank.INSTEAD if varied >= contents.study.records.keys() else Rank.AFTER,
            note=_SCANNED if scanned else "",
            places={PAGE: Place.LOSSES},
            anchor="rates",
            drawn="learning-rates",
            chosen=bool(rates),
        ),
        Section(
            rule.title,
            RULES_MEAN,
            rule,
            metrics=_metrics(rules),
            heading=rule.title,
            places={PAGE: Place.COMPARED, TERMINAL: Place.COMPARED, CSV: Place.COMPARED},
            anchor="rate-rule",
        ),
        Section(
            highest.title,
            ceilings_mean(ceilings),
            highest,
            heading=highest.title,
            places={PAGE: Place.BELOW, TERMINAL: Place.TRAINED, CSV: Place.TRAINED},
            anchor="ceilings",
            below="rates",
        ),
    ]


def scans(contents: Contents) -> list[RateStudy]:
    """The curves of all suggestions of a search over a grid of rates alone."""
    searched = contents.searched
    if searched is None or searched.history.algorithm != GRID:
        return []
    return rate_studies(contents.scan, Labels([row.condition for row in contents.scan]))


def tried(contents: Contents) -> Sequence[LossRow]:
    """Models that were trained at several rates; of a search all suggestions, where none was stopped early."""
    searched = contents.searched
    if searched is None:
        return contents.trained
    return contents.scan if searched.history.scheduler == NONE else ()


def _sentences(rules: Sequence[RateRule], labels: Labels) -> list[str]:
    """Whether the rule holds beyond the sizes that it was fitted to; nothing where few or many conditions have one."""
    ruled = [rule for rule in rules if math.isfinite(rule.gain.middle)]
    if not 0 < len(ruled) <= _MOST_LINES:
        return []
    memories = {labels.memory(rule.condition) for rule in ruled}
    parts = [
        with_interval(rule.gain.middle, rule.gain.low, rule.gain.high)
        + (f" on {labels.memory(rule.condition)}" if len(memories) > 1 else "")
        + f" under `{labels.machine(rule.condition)}`"
        for rule in ruled
    ]
    sizes = joined([*ruled[0].exponents])
    return [f"At held-out sizes, a learning rate that follows {sizes} has, of the loss at one rate, {joined(parts)}."]


def best_rates(studies: Sequence[RateStudy]) -> str:
    """The learning rate of the least loss of every line, and from where on it diverges; at the largest size."""
    if not studies:
        return ""
    study, parts, lost = studies[-1], [], []
    for line, rows in study.lines.items():
        known = [row for row in rows if math.isfinite(row.loss.middle)]
        if known:
            best, tried = rate_of(min(known, key=lambda row: row.loss.middle)), [*map(rate_of, rows)]
            end = {min(tried): "least", max(tried): "greatest"}.get(best, "") if len(tried) > 1 else ""
            parts.append(f"{figure(best, 2)} under `{line}`{f' (the {end} of {len(tried)} tried)' if end else ''}")
        diverged = [rate_of(row) for row in rows if row.diverged]
        if diverged:
            lost.append(f"`{line}` diverges from {figure(min(diverged), 2)} on")
    if not parts:
        return ""
    where = f" on {study.memory}, {study.machine}" if len(studies) > 1 else ""
    return f"The best learning rate{where} is {joined(parts)}{f'; {joined(lost)}' if lost else ''}."


def _metrics(rules: Sequence[RateRule]) -> dict[str, dict[str, float]]:
    """``rate_rule_width/slope`` and ``rate_rule_horizon/slope``: the exponents of the best rate."""
    found = defaultdict[str, dict[str, float]](dict)
    for rule in rules:
        for identity in rule.identities:
            for name, exponent in rule.exponents.items():
                found[identity].update(slope_metrics(exponent, f"rate_rule_{name}"))
    return found
