"""Trials that ``extend`` added to a study: kept by a later sweep, and trained from a kept state where there is one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.canonical import flatten, to_dict
from memsweep.errors import ConfigError, counted
from memsweep.sweep.store.results import STATES

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.sweep.planning.plan import PlannedTrial
    from memsweep.sweep.planning.plan_file import StoredPlan
    from memsweep.sweep.store.results import Store

SEARCH = "search"
"""In the place of identities, where a search was extended: its trials follow from its settings."""
_MOST = 4  # fields that a message names


def added(before: StoredPlan, trials: Collection[PlannedTrial]) -> tuple[str, ...]:
    """The additions of all extensions of a study so far, to be kept in its next plan."""
    if before.search is not None:
        return (SEARCH,)
    new = (trial.identity for trial in trials if trial.identity not in before.rows)
    return tuple(dict.fromkeys([*before.extended, *new]))


def refuse_to_drop(before: StoredPlan | None, sweep: SweepConfig, resume: str) -> None:
    """Refuses a plan that lacks what ``extend`` added to the one before it.

    Args:
        before: the stored plan.
        sweep: the study that would replace it.
        resume: the command that runs the whole stored plan.

    Raises:
        ConfigError: with what would be dropped, and what to do.
    """
    if before is None or not before.extended or not (lost := _lost(before, sweep)):
        return
    raise ConfigError(
        [
            f"memsweep extend added {lost} to this study, and this sweep lacks them: it would take them out of the "
            f"plan and of the report (their results stay). To run the whole plan: {resume}. To "
            "drop them: the same command with --drop-extended. To keep both: give this sweep another name, name=..."
        ],
        f"study {before.study!r}",
    )


def _lost(before: StoredPlan, sweep: SweepConfig) -> str:
    """Says what the study lacks of an extension; empty where nothing."""
    rows = [to_dict(row) for row in sweep.rows]
    if before.search is None:
        lost = [config for name in before.extended if (config := before.rows.get(name)) and config not in rows]
        return f"{counted(len(lost), 'trial')}{_values(lost, rows)}" if lost else ""
    if sweep.search is None:
        return "more of its search"
    cells = [cell for cell in before.cells if cell not in rows]
    trials = before.search.settings.trials - sweep.search.settings.trials
    words = [f"{counted(len(cells), 'cell')}{_values(cells, rows)}"] if cells else []
    words += [counted(trials, "suggestion")] if trials > 0 else []
    words += ["confirmations"] if before.confirm is not None and before.confirm != sweep.confirm else []
    return " and ".join(words)


def _values(lost: Sequence[Any], kept: Sequence[Any]) -> str:
    """The values that only the lost trials have: `` (model.width: 4, 6)``."""
    there: dict[str, set[str]] = {}
    for config in kept:
        for path, value in flatten(config).items():
            there.setdefault(path, set()).add(json.dumps(value, default=str))
    own: dict[str, list[str]] = {}
    for config in lost:
        for path, value in flatten(config).items():
            if (text := json.dumps(value, default=str)) not in there.get(path, set()) | {*own.get(path, [])}:
                own.setdefault(path, []).append(text)
    parts = [f"{path}: {', '.join(texts)}" for path, texts in own.items()]
    return f" ({'; '.join(parts[:_MOST])})" if parts else ""


def with_kept_states(trials: Sequence[PlannedTrial], done: Collection[str], store: Store) -> tuple[PlannedTrial, ...]:
    """The trials, each that lacks a result after the longest kept training that is its beginning.

    A training that ends early (``training.until``) keeps its state. It has the bits of the whole training at that step,
    so a trial that differs from it in ``until`` alone goes on from there, with the bits of an uninterrupted one.
    """
    kept = store.location.names(STATES)
    early = [trial for trial in trials if trial.config.training.until and f"{trial.identity}.pt" in kept]
    if not early:
        return tuple(trials)
    return tuple(trial if trial.identity in done else _after(trial, early) for trial in trials)


def _after(trial: PlannedTrial, early: Sequence[PlannedTrial]) -> PlannedTrial:
    from memsweep.learning.state.warm_start import prefix

    shards, best = trial.arithmetic.shards, (0, "")
    for other in early:
        until = other.config.training.until
        same = best[0] < until < trial.config.training.end and other.arithmetic == trial.arithmetic
        if same and prefix(other.config, until, shards) == prefix(trial.config, until, shards):
            best = until, other.identity
    return dataclasses.replace(trial, after=best[1])


def more_steps(stored: Collection[TrialConfig], new: Collection[TrialConfig]) -> str:
    """Why trials that differ from stored ones in ``training.steps`` train from the beginning; empty without such."""
    known = {_without_steps(row): row for row in stored}
    pairs = [(before, row) for row in new if (before := known.get(_without_steps(row))) is not None]
    if not pairs:
        return ""
    old, longer = (each.training for each in pairs[0])
    why = (
        f"the learning rate falls over all steps (schedule cosine), so a training of {longer.steps} steps is "
        "another one from its first step on"
        if (longer.schedule or "cosine") == "cosine"
        else f"a training that ran all of its {old.steps} steps keeps its best weights, and no state to go on from"
    )
    return (
        f"training.steps: {len(pairs)} trials train from the beginning: {why}. To be able to go on, let a training end "
        f"early: training.steps={longer.steps} training.until={old.steps}. memsweep extend with training.until=0 then "
        "goes on from there, with the bits of an uninterrupted training."
    )


def _without_steps(row: TrialConfig) -> str:
    training = dataclasses.replace(row.training, steps=1, until=0, warmup=0)
    return json.dumps(to_dict(dataclasses.replace(row, training=training)), sort_keys=True, default=str)
