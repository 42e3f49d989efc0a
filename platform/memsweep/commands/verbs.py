"""The verbs that compute: sweep, resume, extend, retry."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep import registry
from memsweep.commands.extend import extended, prolonged
from memsweep.commands.run import carry_out
from memsweep.commands.start import Intent
from memsweep.commands.stored import find_study, stored_plan
from memsweep.config.load.study import load_study
from memsweep.errors import MemsweepError
from memsweep.sweep.planning.plan import identified
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import State, read_rows
from memsweep.sweep.store.results import folder_name

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig
    from memsweep.sweep.planning.plan import PlannedTrial
    from memsweep.sweep.planning.plan_file import StoredPlan
    from memsweep.sweep.store.results import Store


def sweep(args: argparse.Namespace) -> int:
    """Run a study: plan, train, measure, judge, report. Returns the exit code."""
    study = load_study(args.study, args.overrides, Path(args.workspace))
    return carry_out(Intent(study, _rows(study), no_reuse=args.no_reuse), args, Location.at(args.results))


def resume(args: argparse.Namespace) -> int:
    """Finish the stored plan of a study; needs no study file."""
    store, plan = _stored(args)
    study = _unchanged(plan)
    return carry_out(Intent(study, _rows(study), tracking=plan.tracking, plan=plan), args, store.location.parent)


def retry(args: argparse.Namespace) -> int:
    """Run the rows of a study that failed, and no others."""
    store, plan = _stored(args)
    study = _unchanged(plan)
    rows, stored = read_rows(store.location), store.identities()
    ended_badly = {State.FAILED, State.OUT_OF_MEMORY}
    failed = {name for name, row in rows.items() if row.state in ended_badly} | store.failures().keys()
    only = frozenset(failed - stored)
    intent = Intent(study, _rows(study), only, poisoned_too=args.force, tracking=plan.tracking, plan=plan)
    return carry_out(intent, args, store.location.parent)


def extend(args: argparse.Namespace) -> int:
    """Add rows to the stored plan of a study, and run what has no result."""
    wider = load_study(args.study, args.overrides, Path(args.workspace))
    results = Location.at(args.results)
    plan = stored_plan(find_study(wider.name, results))
    before = _unchanged(plan)
    study = prolonged(before, wider) if before.search or wider.search else extended(before, wider)
    return carry_out(Intent(study, _rows(study), plan=plan), args, results)


def _rows(study: SweepConfig) -> tuple[PlannedTrial, ...]:
    """The rows of a grid; a search makes its own as it goes."""
    return identified(study) if study.search is None else ()


def _stored(args: argparse.Namespace) -> tuple[Store, StoredPlan]:
    registry.discover(Path(args.workspace))
    store = find_study(args.study, Location.at(args.results))
    plan = stored_plan(store)
    if store.location.name != folder_name(plan.study):
        raise MemsweepError(
            f"{store.location} holds the study {plan.study!r}, whose folder is called {folder_name(plan.study)}: it "
            "was copied or renamed. Give the folder that name (in another results folder, where there is one already)."
        )
    return store, plan


def _unchanged(plan: StoredPlan) -> SweepConfig:
    """The study of a stored plan, which the code of today would still give the same identities.

    Raises:
        MemsweepError: it would not.
    """
    study = plan.sweep()
    if study.search is not None:  # its rows are compared when its rounds have been gone through
        return study
    trials = identified(study)
    if changed := sum(trial.identity not in plan.rows for trial in trials):
        raise MemsweepError(
            f"{changed} of the {len(trials)} rows of {plan.study!r} are other trials to what is installed now: the "
            "code that makes the numbers, or the version of torch or numpy, has changed since the plan was made. "
            f"Bring back what made it, or run the study with today's: memsweep sweep {plan.study} (memsweep plan says "
            "which results it can reuse)."
        )
    return study
