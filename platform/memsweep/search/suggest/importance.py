"""Importance of the searched fields for the objective: PED-ANOVA on the suggestions that were trained to the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from memsweep.config.schema.search import Domain
from memsweep.search.suggest import space as spaces
from memsweep.search.suggestions import SuggestionRecord, SuggestionState

LEAST = 20
"""Fewer finished suggestions than this say nothing reliable."""

_FEWEST_BEST = 5  # Optuna's advice for the method


def importance(
    records: Sequence[SuggestionRecord], space: Mapping[str, Domain], mode: str, objective: int
) -> dict[str, float]:
    """Share of each searched field in how good suggestions differ from all of them, largest first.

    PED-ANOVA (Watanabe, Bansal & Hutter 2023, arXiv 2304.10255) as Optuna computes it: how differently the best lie
    along a field than all that was tried, where the best are a tenth of them, and 5 at least. Two fields that matter
    only together may both look small.

    Args:
        records: suggestions of one search.
        space: of the search; conditional fields, which some suggestions lack, are left out.
        mode: ``min`` or ``max``.
        objective: which one, counted from 0.

    Returns:
        Dotted path -> share; empty with fewer than ``LEAST`` finished suggestions, with fewer than two fields that
        vary, or where the best lie as all do.
    """
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator

    known = [record for record in records if _value(record, objective) is not None]
    fields = [path for path, domain in space.items() if not domain.when and _varies(path, known)]
    if len(known) < LEAST or len(fields) < 2:
        return {}
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # no message about a study in memory
    try:
        study = optuna.create_study(direction="minimize" if mode == "min" else "maximize")
    finally:
        optuna.logging.set_verbosity(verbosity)
    distributions = {path: spaces.distribution(space[path]) for path in fields}
    for record in known:
        params = {path: spaces.inward(space[path], record.suggestion.values[path]) for path in fields}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=distributions, value=_value(record, objective))
        )
    shares = PedAnovaImportanceEvaluator(target_quantile=max(0.1, _FEWEST_BEST / len(known))).evaluate(study)
    total = sum(shares.values())
    if not math.isfinite(total) or total <= 0:
        return {}
    return {path: value / total for path, value in sorted(shares.items(), key=lambda item: -item[1])}


def _value(record: SuggestionRecord, objective: int) -> float | None:
    if record.state is not SuggestionState.DONE or record.values is None:
        return None
    value = record.values[objective]
    return value if math.isfinite(value) else None


def _varies(path: str, records: Sequence[SuggestionRecord]) -> bool:
    values = [record.suggestion.values.get(path) for record in records]
    return None not in values and len({repr(value) for value in values}) > 1
