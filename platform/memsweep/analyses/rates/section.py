"""The section of learning rates across sizes: the rule with its sentence and metrics, and the ceilings."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from memsweep.analyses.rates.ceilings import rate_ceilings
from memsweep.analyses.rates.rule import RateRule, rate_rules
from memsweep.analyses.rates.tables import RULES_MEAN, ceiling_table, ceilings_mean, rule_table
from memsweep.config.schema.search import NONE
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.learning_rates.curves import RATE
from memsweep.report.analysis.losses import LossRow
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import joined, with_interval
from memsweep.report.values.section import Place, Rank, Section, slope_metrics
from memsweep.report.values.table import CSV, PAGE, TERMINAL

_MOST_LINES = 6  # conditions that one sentence compares


def sections(contents: Contents) -> list[Section]:
    """The rule across sizes, and the ceilings of the curves."""
    names, labels = contents.grouping.columns, contents.labels
    rules, ceilings = rate_rules(tried(contents)), rate_ceilings(contents.rates)
    rule, highest = rule_table(rules, names, labels), ceiling_table(ceilings, names, labels)
    return [
        Section(
            rule.title,
            RULES_MEAN,
            rule,
            metrics=_metrics(rules),
            answer=_sentences(rules, labels.without(RATE)),
            rank=Rank.OF_RATES,
            heading=rule.title,
            places={PAGE: Place.COMPARED, TERMINAL: Place.COMPARED, CSV: Place.COMPARED},
            anchor="rate-rule",
        ),
        Section(
            highest.title,
            ceilings_mean(ceilings),
            highest,
            heading=highest.title,
            places={PAGE: Place.BELOW_RATES, TERMINAL: Place.TRAINED, CSV: Place.TRAINED},
            anchor="ceilings",
        ),
    ]


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


def _metrics(rules: Sequence[RateRule]) -> dict[str, dict[str, float]]:
    """``rate_rule_width/slope`` and ``rate_rule_horizon/slope``: the exponents of the best rate."""
    found = defaultdict[str, dict[str, float]](dict)
    for rule in rules:
        for identity in rule.identities:
            for name, exponent in rule.exponents.items():
                found[identity].update(slope_metrics(exponent, f"rate_rule_{name}"))
    return found
