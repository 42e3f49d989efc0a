"""Which of the searched fields decided the objective: PED-ANOVA on the suggestions that were trained to the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from memsweep.config.schema.search import CHOICE, INT, LOG_INT, LOG_UNIFORM, Domain
from memsweep.search.suggestions import SuggestionRecord, SuggestionState

LEAST = 20
"""Fewer finished suggestions than this say nothing reliable."""

_FEWEST_BEST = 5  # Optuna's advice for the method


def importance(
    members: Sequence[SuggestionRecord], space: Mapping[str, Domain], mode: str, objective: int
) -> dict[str, float]:
    """Share of each searched field in how good suggestions differ from all of them, largest first.

    PED-ANOVA (Watanabe, Bansal & Hutter 2023, arXiv 2304.10255) as Optuna computes it: how differently the best lie
    along a field than all that was tried, where the best are a tenth of them, and 5 at least. Two fields that matter
    only together may both look small.

    Args:
        members: of one block.
        space: of the search; conditional fields, which some suggestions lack, are left out.
        mode: ``min`` or ``max``.
        objective: which one, counted from 0.

    Returns:
        Dotted path -> share; empty with fewer than ``LEAST`` finished suggestions, with fewer than two fields that
        vary, or where the best lie as all do.
    """
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator

    known = [member for member in members if _value(member, objective) is not None]
    fields = [path for path, domain in space.items() if not domain.when and _varies(path, known)]
    if len(known) < LEAST or len(fields) < 2:
        return {}
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # a study in memory is no news
    try:
        study = optuna.create_study(direction="minimize" if mode == "min" else "maximize")
    finally:
        optuna.logging.set_verbosity(verbosity)
    distributions = {path: _distribution(space[path]) for path in fields}
    for member in known:
        params = {path: member.suggestion.values[path] for path in fields}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=distributions, value=_value(member, objective))
        )
    found = PedAnovaImportanceEvaluator(target_quantile=max(0.1, _FEWEST_BEST / len(known))).evaluate(study)
    total = sum(found.values())
    if not math.isfinite(total) or total <= 0:
        return {}
    return {path: value / total for path, value in sorted(found.items(), key=lambda item: -item[1])}


def _value(member: SuggestionRecord, objective: int) -> float | None:
    if member.state is not SuggestionState.DONE or member.values is None:
        return None
    value = member.values[objective]
    return value if math.isfinite(value) else None


def _varies(path: str, members: Sequence[SuggestionRecord]) -> bool:
    values = [member.suggestion.values.get(path) for member in members]
    return None not in values and len({repr(value) for value in values}) > 1


def _distribution(domain: Domain) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if domain.kind == CHOICE:
        return CategoricalDistribution(domain.values)
    if domain.kind in (INT, LOG_INT):
        return IntDistribution(int(domain.low), int(domain.high), log=domain.kind == LOG_INT)
    return FloatDistribution(domain.low, domain.high, log=domain.kind == LOG_UNIFORM)
