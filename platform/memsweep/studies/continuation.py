"""The requests that go on with a stored plan: resume, extend and retry."""

from __future__ import annotations

from collections.abc import Sequence

from memsweep.config.schema.study import SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import MemsweepError
from memsweep.report.read.command_line import words_left_out
from memsweep.report.read.rounds import REPAIRED_FIELDS, stored_rounds
from memsweep.studies.extension import (
    begun_anew,
    changed_since,
    extend_grid,
    extend_search,
    is_of_module,
    of_other_settings,
    without_seeds,
)
from memsweep.studies.locations import find_study, plan_to_run
from memsweep.studies.trials import Request, added, more_steps
from memsweep.sweep.planning.identity import identifying
from memsweep.sweep.planning.plan import PlannedTrial, identified
from memsweep.sweep.planning.plan_file import StoredPlan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import State, read_statuses
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.results import Store
from memsweep.trust.gate import Trust


def trials_of(study: SweepConfig) -> tuple[PlannedTrial, ...]:
    """The trials of a grid; a search makes its own round by round."""
    return identified(study) if study.search is None else ()


def resumed(store: Store, trust: Trust) -> Request:
    """Finishes the stored plan of a study.

    Raises:
        MemsweepError: its folder has another name, or the installed code gives its trials other identities; others as
            of ``plan_to_run``.
    """
    plan = plan_to_run(store, trust)
    refuse_renamed(store, plan.study)
    study = unchanged(plan, store.location.parent)
    return Request(study, trials_of(study), plan=plan)


def refuse_renamed(store: Store, study: str) -> None:
    """See that a study's folder has its name: by the name the results are found, and those of another folder are not.

    Raises:
        MemsweepError: it has another one.
    """
    if store.location.name != folder_name(study):
        raise MemsweepError(
            f"{store.location} holds the study {study!r}, whose folder is called {folder_name(study)}: it was copied "
            "or renamed. Give the folder that name (in another results folder, where there is one already)."
        )


def retried(store: Store, trust: Trust, *, force: bool) -> Request:
    """Runs the trials of a study that failed, and no others.

    Args:
        store, trust: as of ``resumed``, which raises the same errors.
        force: also those that failed in the same way too often.
    """
    whole = resumed(store, trust)
    statuses, ended_badly = read_statuses(store.location), {State.FAILED, State.OUT_OF_MEMORY}
    badly = {name for name, status in statuses.items() if status.state in ended_badly or status.given_up}
    only = frozenset((badly | store.failures().keys()) - store.identities())
    return Request(whole.sweep, whole.trials, only, retry_all=force, plan=whole.plan)


def extended(wider: SweepConfig, results: Location, trust: Trust, source: str) -> tuple[Request, str]:
    """Adds trials to the stored plan of a study, and runs those without a result.

    Args:
        wider: the study that is asked for.
        results: the folder of all studies.
        trust: the person's word for code that the plan names.
        source: the study as it was named.

    Returns:
        And sentences on trials that train from the beginning, and on sizes of earlier extensions that new trials
        lack; empty where there are none.

    Raises:
        MemsweepError: nothing is added, or it cannot be; others as of ``resumed``.
        ConfigError: what is added has settings that a round of ``decide`` has changed.
    """
    store = find_study(wider.name, results)
    plan = plan_to_run(store, trust, wider.rows)
    before = unchanged(plan, results)
    if before.search or wider.search:
        study = extend_search(before, wider, extended=bool(plan.extended))
    else:
        earlier = [row for name, row in zip(plan.rows, before.rows, strict=True) if name in plan.extended]
        study = extend_grid(before, wider, earlier)
    trials, new = trials_of(study), [row for row in study.rows if row not in before.rows]
    # the fields of repairs tell no conditions apart: seeds of two trainings would be one sample
    repaired = any(one.removed for one in stored_rounds(store.location, plan.rows.values()))
    if repaired and (other := of_other_settings(wider, new, before.rows, REPAIRED_FIELDS)):
        raise changed_since(wider.name, other, store.location)
    note = " ".join(filter(None, (more_steps(before.rows, new), _left_out(plan, before, wider, new))))
    return Request(study, trials, plan=plan, extended=added(plan, trials), source=source), note


def _left_out(plan: StoredPlan, before: SweepConfig, wider: SweepConfig, new: Sequence[TrialConfig]) -> str:
    """Says which sizes of earlier extensions the new trials lack; empty where these add seeds alone, or lack none."""
    if before.search or not new or {*map(without_seeds, new)} <= {*map(without_seeds, before.rows)}:
        return ""
    words = words_left_out(plan.rows, plan.extended, [identifying(row) for row in wider.rows])
    if not words:
        return ""
    return (
        "The study's file does not name what earlier extensions brought, so the new trials do not have all of it. For "
        f"trials at all of these sizes, too, add to this command: {' '.join(words)}"
    )


def unchanged(plan: StoredPlan, results: Location) -> SweepConfig:
    """The study of a stored plan.

    Raises:
        MemsweepError: the installed code gives its trials other identities.
    """
    study = plan.sweep()
    if study.search is not None:  # its trials are compared when its rounds are repeated
        return study
    trials = identified(study)
    if changed := sum(trial.identity not in plan.rows for trial in trials):
        why = "it needs another name" if is_of_module(plan) else "memsweep plan says which results it can reuse"
        why += "; then add again what extend or decide added" if plan.extended else ""
        raise MemsweepError(
            f"{changed} of the {len(trials)} trials of {plan.study!r} have another identity under the installed code: "
            "the code that makes the numbers, a data file, this machine's kernels, or the version of torch or numpy "
            "has changed since the plan was made. Install the version that made it, or run the study with this one: "
            f"{begun_anew(plan, results, dropping=True)} ({why})."
        )
    return study
