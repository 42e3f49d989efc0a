"""Prints plans, states, endings and paths for the commands."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from memsweep import registry
from memsweep.errors import printable

_MOST_NOTES = 6

if TYPE_CHECKING:
    from memsweep.commands.trials import Trials
    from memsweep.config.schema.study import ResourcesConfig, SweepConfig
    from memsweep.errors import StoreError
    from memsweep.report import ReportPaths
    from memsweep.search.history import SearchHistory
    from memsweep.sweep.driver.runner import RunSummary
    from memsweep.sweep.estimate.estimate import Estimate
    from memsweep.sweep.planning.plan import Plan
    from memsweep.sweep.planning.plan_file import StoredPlan
    from memsweep.sweep.planning.reuse import Reason, Reuse
    from memsweep.sweep.store.filesystem import Location
    from memsweep.sweep.store.journal import TrialStatus
    from memsweep.sweep.store.lease import Holder
    from memsweep.sweep.worker.timing import Profile


def _print(text: str, file: TextIO | None = None) -> None:
    """Prints a text that may hold names, paths and errors of others, without their control characters."""
    print(printable(text), file=file)


def print_plan(plan: Plan, reuse: Reuse, reasons: Mapping[str, Reason] | None = None, *, verbose: bool = False) -> None:
    """Prints every trial with its varied fields and its state, then the work that is left and why it is left.

    Args:
        plan: the plan.
        reuse: the results that need no work.
        reasons: why the other trials are not reused, see ``memsweep.sweep.planning.reuse``.
        verbose: also print the exact difference for a few trials.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from memsweep.config.schema.canonical import flatten, to_dict
    from memsweep.config.schema.protocols import MATCHED

    flat = [flatten(to_dict(trial.config)) for trial in plan.trials]
    varied = [key for key in flat[0] if len({repr(fields.get(key)) for fields in flat}) > 1]
    pack_of = {trial.identity: number for number, pack in enumerate(plan.packs, 1) for trial in pack.trials}
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("identity", *varied, "state"):
        table.add_column(name)
    for trial, fields in zip(plan.trials, flat, strict=True):
        if trial.identity in reuse.here:
            state = "done"
        elif trial.identity in reuse.elsewhere:
            state = f"reused from {reuse.elsewhere[trial.identity].name}"
        else:
            reason = reasons.get(trial.identity) if reasons else None
            state = f"to run, pack {pack_of[trial.identity]}" + (f" ({reason.why})" if reason else "")
        table.add_row(trial.identity[:12], *(printable(str(fields.get(key, ""))) for key in varied), printable(state))
    console = Console(markup=False, width=None if sys.stdout.isatty() else 160)
    console.print(table)
    left = len(plan.trials) - len(plan.done)
    _print(f"study {plan.sweep.name}: {len(plan.trials)} trials, {len(plan.done)} done or reused, {left} to run")
    if reasons:
        from memsweep.sweep.planning.reuse import by_reason, examples

        _print(f"not reused: {by_reason(reasons)}")
        for line in examples(reasons) if verbose else ():
            _print(f"  {line}")
    if plan.sweep.protocol != MATCHED:
        _print(f"protocol: {plan.sweep.protocol}, under the study's own settings")
    _print_objectives(plan.sweep)
    whole = sum(pack.cost for pack in plan.packs) or 1.0
    shares = ", ".join(f"{pack.cost / whole:.0%} ({len(pack.trials)} trials)" for pack in plan.packs[:8])
    more = f" and {len(plan.packs) - 8} more" if len(plan.packs) > 8 else ""
    seeds = sum(trial.config.training.seeds for pack in plan.packs for trial in pack.trials)
    if measured := _only_measured(plan):
        _print(f"to measure only: {counted(measured, 'trial')}, whose trained weights are stored")
    _print(f"to run: {seeds} seeds in {len(plan.packs)} packs" + (f"; work shares {shares}{more}" if shares else ""))
    _print_resources(plan.sweep.resources)


def _only_measured(plan: Plan) -> int:
    """How many trials of the packs are not trained, because their weights are stored."""
    return sum(bool(trial.trained[0]) for pack in plan.packs for trial in pack.trials)


def _print_objectives(sweep: SweepConfig) -> None:
    """What the trials are trained on: nothing that is added to the loss is left out."""
    from memsweep.config.schema.canonical import to_dict
    from memsweep.config.schema.objective import objectives

    for text in objectives(map(to_dict, sweep.rows)):
        _print(f"trained on: {text}")
    for text in _notes(sweep)[:_MOST_NOTES]:
        _print(f"note: {text}")


def _notes(sweep: SweepConfig) -> list[str]:
    """What a reader should know of the models' own code, each note once."""
    different = {(trial.task, trial.model): trial for trial in sweep.rows}
    return list(
        dict.fromkeys(
            note
            for trial in different.values()
            for note in registry.get(registry.MODEL, trial.model.name).notes_of_code(trial, sweep.resources.device)
        )
    )


def print_search_plan(sweep: SweepConfig, stored: int) -> None:
    """Prints the cells of a search, and how many suggestions it may train.

    Args:
        sweep: a study with a search.
        stored: results that the study's folder holds already.
    """
    from memsweep.config.schema.search import NONE

    search, confirm, cells = sweep.search, sweep.confirm, len(sweep.rows)
    if search is None:
        raise ValueError(f"the study {sweep.name!r} searches nothing")
    settings = search.settings
    searched = f"{counted(settings.trials, 'suggestion')} of {settings.algorithm}, {settings.batch} at once"
    _print(f"study {sweep.name}: {searched}, in each of {counted(cells, 'cell')}")
    _print(f"searched: {', '.join(search.space)}; for {', '.join(settings.objective)}")
    _print(f"to run: {counted(cells * settings.trials, 'suggestion')} of {sweep.rows[0].training.seeds} seeds")
    if settings.scheduler.name != NONE:
        _print(f"hours and disk are a bound: {settings.scheduler.name} ends some trainings before their last step")
    _print_objectives(sweep)
    if confirm is not None:
        again = counted(cells * confirm.top, "trial")
        _print(f"then {again} of {confirm.seeds} fresh seeds to confirm the best of each cell")
    if stored:
        _print(f"{counted(stored, 'result')} stored already: the search reuses them where it asks for the same trial")
    _print_resources(sweep.resources)


def print_estimate(made: Estimate, stored: tuple[float, float], *, probed: bool) -> None:
    """Prints the expected hours, memory and disk, and the error of these estimates.

    Args:
        made: the estimate.
        stored: bytes of a trial of this study's stored results, and of its weights among them; 0 where there is none.
        probed: a measurement was asked for.
    """
    from memsweep.sweep.driver.progress_view import duration

    gib, mib, kib = 2**30, 2**20, 2**10
    alone = f"{duration(made.work)} of one pack after the other"
    if made.seconds is None:
        _print(f"expected: {alone}; this machine cannot hold a pack, so its hours follow from the cluster's")
    else:
        at_once = f"{counted(made.slots, 'pack')} at once"
        _print(f"expected on this machine, {at_once}: {duration(made.seconds)} ({alone})")
        _print(f"  and some {10 + made.starting:.0f} s for Ray and its workers to start")
    kinds, measured = made.kinds
    if measured:
        others = "" if measured == kinds else f", {made.measured:.0%} of the work; the others by the cost model"
        _print(f"  measured on {measured} of {counted(kinds, 'kind')} of programs{others}")
        _print(f"  right within a factor of {made.factor:g}, where nothing else runs and no training ends early")
    else:
        why = "nothing was measured" if probed else "nothing was measured (--no-probe)"
        near = (
            f"within a factor of {made.factor:g} for models of one recurrent layer and residual_stack, ten times too "
            "short for other deep ones"
        )
        _print(f"  by the cost model alone, which is right {near}: {why}")
    for sentence in made.why_not:
        _print(f"  {sentence}")
    if made.memory:
        together = f", {made.slots} at once {made.slots * made.memory / gib:.2f} GiB" if made.slots > 1 else ""
        _print(f"memory: {made.memory / mib:.0f} MiB for the largest pack beyond its bare process{together} (measured)")
    else:
        _print("memory: not measured")
    disk, weights = stored if stored[0] else (made.disk, made.weights)
    how = "as its stored trials" if stored[0] else "measured on trials of full size"
    if disk:
        total = disk * made.rows
        size = f"{total / gib:.2f} GiB" if total >= gib else f"{total / mib:.1f} MiB"
        each = f"{disk / kib:.0f} KiB a trial, {weights / kib:.1f} KiB of them weights"
        _print(f"disk: {size}, {each} ({how}); MLflow's copy and the report not counted")
    else:
        _print("disk: not measured")


def _print_resources(resources: ResourcesConfig) -> None:
    asked = f"{resources.cpus:g} CPU, {resources.card:g} GPU"
    _print(f"each pack asks for {asked}" + (f" for each of {resources.workers} workers" * (resources.workers > 1)))


def print_difference(trials: Trials, statuses: Mapping[str, TrialStatus]) -> None:
    """Prints what a run is about to do, compared with the journal of the study; before it does it."""
    from memsweep.sweep.store.journal import State

    plan, reuse = trials.plan, trials.reuse
    planned = {trial.identity for trial in plan.trials}
    study = word(plan.sweep.name)
    left = sum(len(pack.trials) for pack in plan.packs)
    parts = [f"{len(reuse.here)} done"] if reuse.here else []
    parts += [f"{len(reuse.elsewhere)} reused from other studies"] if reuse.elsewhere else []
    parts += [f"{left} to run in {counted(len(plan.packs), 'pack')}" if left else "nothing to run"]
    parts += [f"{measured} of them only measured, from stored weights"] if (measured := _only_measured(plan)) else []
    parts += [f"{trials.postponed} not now (memsweep resume {study})"] if trials.postponed else []
    _print(f"{plan.sweep.name}: {counted(len(planned), 'trial')}: {', '.join(parts)}")
    new = len(planned - statuses.keys()) if statuses else 0
    removed = sum(name not in planned and status.state is not State.CANCELLED for name, status in statuses.items())
    stopped = sum(name in planned and status.state is State.RUNNING for name, status in statuses.items())
    again = [name for name in planned - reuse.all - trials.gave_up if name in statuses and statuses[name].failures]
    if new:
        _print(f"  {counted(new, 'trial')} added to the plan")
    if removed:
        _print(f"  {counted(removed, 'trial')} of the earlier plan removed: cancelled; results stay")
    if stopped:
        _print(f"  {counted(stopped, 'trial')} ran when the last driver died: queued again")
    if again and not trials.postponed:
        _print(f"  {counted(len(again), 'trial')} failed before: tried again")
    for name, fault in reuse.damaged.items():
        _print(f"  {name}: damaged, recomputed: {fault}")
    for name in sorted(trials.gave_up):
        _print(
            f"  {name}: gave up after {statuses[name].failures} failures in the same way: {statuses[name].kind[:200]}"
        )
    if trials.gave_up:
        _print(f"  to try anyway: memsweep retry {study} --force")


def print_status(
    plan: StoredPlan,
    statuses: Mapping[str, TrialStatus],
    who: Holder | None,
    failures: Mapping[str, Any],
    damaged: Mapping[str, StoreError],
    search: SearchHistory | None = None,
) -> None:
    """Prints the trials in each state, the progress of a search, failed and damaged trials, and the running process."""
    from memsweep.sweep.store.journal import State, TrialStatus

    of_plan = {name: statuses.get(name, TrialStatus()) for name in plan.rows}
    counts = Counter(status.state for status in of_plan.values())
    cancelled = sum(status.state is State.CANCELLED for name, status in statuses.items() if name not in of_plan)
    done = sum(status.state.has_result for status in of_plan.values())
    _print(f"{plan.study}: {done} of {counted(len(of_plan), 'trial')} have a result")
    for state in State:
        if count := counts[state] + (cancelled if state is State.CANCELLED else 0):
            _print(f"  {count:>6} {state.value.replace('_', ' '):<14} {state.explanation}")
    if search is not None:
        _print_search(search)
    for name, failure in failures.items():
        if name in of_plan:
            times = f" ({of_plan[name].failures} times in the same way)" if of_plan[name].failures > 1 else ""
            _print(f"  {name}: {failure['outcome']}{times}: {first_line(str(failure.get('error', '')))}")
    for name, fault in damaged.items():
        _print(f"  {name}: {first_line(str(fault))}")
    if who is not None:
        _print(f"running: {who}")
        return
    left = done < len(of_plan) or (search is not None and not search.ended)
    _print("not running" + (f"; to finish it: memsweep resume {word(plan.study)}" if left else ""))


def _print_search(search: SearchHistory) -> None:
    from memsweep.search.suggestions import SuggestionState

    states = Counter(one.state for one in search.suggestions)
    ended = len(search.suggestions) - states[SuggestionState.RUNNING]
    parts = [f"{states[state]} {state}" for state in SuggestionState if states[state]]
    rest = "the winners are known" if search.ended else "more rounds follow"
    _print(f"search: {ended} of {counted(len(search.suggestions), 'suggestion')} ended ({', '.join(parts)}); {rest}")


def counted(count: int, noun: str) -> str:
    """``1 trial``, ``2 trials``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def first_line(text: str) -> str:
    """The first line of a text, at most 300 characters of it."""
    return (text.splitlines() or [""])[0][:300]


def word(study: str) -> str:
    """A study's name as one word of a shell."""
    return shlex.quote(study)


def print_end(trials: int, reused: int, summary: RunSummary, paths: ReportPaths, seconds: float) -> None:
    """Prints the verdicts, how many trials finished, which failed and why, and the paths of the report.

    Args:
        trials: number of trials of the study.
        reused: how many of them had a result before the run.
        summary: of the run.
        paths: of the report.
        seconds: how long the run took.
    """
    from memsweep.report import table_text
    from memsweep.sweep.driver.progress_view import duration

    print()
    print(table_text(paths))
    of_them = f", {reused} of them reused" if reused else ""
    _print(f"{reused + len(summary.finished)}/{trials} done{of_them}; {duration(seconds)}")
    if summary.finished:
        _print(profile_text(summary.profile))
    if summary.diverged:
        _print(f"{summary.diverged} diverged: their errors are inf in the report")
    for identity, failure in list(summary.failed.items())[:5]:
        _print(f"{failure['outcome']}: {identity}: {first_line(failure['error'])}", file=sys.stderr)
        _print(failure["traceback"], file=sys.stderr)
    if len(summary.failed) > 5:
        _print(f"{len(summary.failed) - 5} more failed: the report has every traceback", file=sys.stderr)
    _print(f"report:    {shown(paths.page)}{_also(paths)}")
    _print(f"verdicts:  {shown(paths.folder / 'verdicts.csv')}")


def print_stop(summary: RunSummary, left: int, study: str) -> None:
    """Prints what stopped a run before its end, how many trials are left, and how to go on.

    Args:
        summary: of the run.
        left: trials of the plan that neither have a result nor failed for good in this run; a search may add more.
        study: its name.
    """
    kept = "what is finished is kept. Run the same command again to go on, or: memsweep resume " + word(study)
    if summary.outage:
        again = f"run the same command again, or: memsweep resume {word(study)}"
        _print(f"stopped: {summary.outage}. {counted(left, 'trial')} left; when it is mended, {again}", file=sys.stderr)
    elif summary.lost:
        _print(f"{summary.lost}; {kept}", file=sys.stderr)
    elif summary.limit:
        _print(f"stopped at a limit: {summary.limit}. {counted(left, 'trial')} left; {kept}")
    elif summary.interrupted:
        _print(f"interrupted: {kept}")


def _also(paths: ReportPaths) -> str:
    """The address of a report that lies in a bucket; ``paths`` are those of this machine's copy."""
    return f" (a copy; for all: {paths.uri})" if paths.uri.startswith("s3://") else ""


def profile_text(profile: Profile) -> str:
    """Where the time went: ``work 93 % (training 71, perturbation 20, storing 2), scheduling and idle 7 %``."""
    from memsweep.sweep.worker.timing import WORK

    shares = {name: round(100 * profile.share(name)) for name in WORK}
    largest = sorted((name for name in WORK if shares[name]), key=lambda name: -shares[name])
    parts = ", ".join(f"{name} {shares[name]}" for name in largest)
    idle = round(100 * profile.scheduling)
    return f"time: work {100 - idle} %{f' ({parts})' if parts else ''}, scheduling and idle {idle} %"


def print_tracking(uri: str, results: Location, experiment: str | None) -> None:
    """Prints how to open the runs in MLflow."""
    page = f"/#/experiments/{experiment}/runs" if experiment else ""
    if not uri.startswith("sqlite"):
        _print(f"MLflow:    {uri.rstrip('/') + page if uri.startswith('http') else uri}")
        return
    here = results.local or Path("results").absolute()
    folder = "" if here == Path("results").absolute() else f" RESULTS={shlex.quote(shown(here))}"
    _print(f"MLflow UI: make ui{folder}, then http://127.0.0.1:5000{page}")
    _print(f"           (or: mlflow ui --host 127.0.0.1 --workers 1 --backend-store-uri {uri})")


def shown(path: Path) -> str:
    """The path relative to the current folder, where it lies below it."""
    relative = os.path.relpath(path)
    return printable(str(path) if relative.startswith("..") else relative)
