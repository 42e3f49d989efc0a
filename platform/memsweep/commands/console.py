"""What the verbs of the command line print: plans, endings, paths."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memsweep.config.schema.study import ResourcesConfig, SweepConfig
    from memsweep.errors import StoreError
    from memsweep.report import ReportPaths
    from memsweep.search.history import SearchHistory
    from memsweep.sweep.driver.runner import RunSummary
    from memsweep.sweep.estimate.estimate import Estimate
    from memsweep.sweep.estimate.expected_load import Wave
    from memsweep.sweep.planning.plan import Plan
    from memsweep.sweep.planning.plan_file import StoredPlan
    from memsweep.sweep.planning.reuse import Reason, Reuse
    from memsweep.sweep.store.filesystem import Location
    from memsweep.sweep.store.journal import Row
    from memsweep.sweep.store.lease import Holder
    from memsweep.sweep.worker.timing import Profile


def print_plan(
    made: Plan,
    here: set[str],
    elsewhere: Mapping[str, Location],
    reasons: Mapping[str, Reason] | None = None,
    *,
    verbose: bool = False,
) -> None:
    """Every row with what varies and what will become of it, then the work that is left and why it is.

    Args:
        made: the plan.
        here: identities that this study holds.
        elsewhere: identities that another study holds -> its folder.
        reasons: why the other rows are not reused, see ``memsweep.sweep.planning.reuse``.
        verbose: also say of a few rows what exactly is different.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from memsweep.config.schema.canonical import flatten, to_dict
    from memsweep.config.schema.protocols import MATCHED

    flat = [flatten(to_dict(trial.config)) for trial in made.trials]
    varied = [key for key in flat[0] if len({repr(row.get(key)) for row in flat}) > 1]
    pack_of = {trial.identity: number for number, pack in enumerate(made.packs, 1) for trial in pack.trials}
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("identity", *varied, "state"):
        table.add_column(name)
    for trial, row in zip(made.trials, flat, strict=True):
        if trial.identity in here:
            state = "done"
        elif trial.identity in elsewhere:
            state = f"reused from {elsewhere[trial.identity].name}"
        else:
            reason = reasons.get(trial.identity) if reasons else None
            state = f"to run, pack {pack_of[trial.identity]}" + (f" ({reason.why})" if reason else "")
        table.add_row(trial.identity[:12], *(str(row.get(key, "")) for key in varied), state)
    console = Console(markup=False, width=None if sys.stdout.isatty() else 160)
    console.print(table)
    whole = sum(pack.cost for pack in made.packs) or 1.0
    shares = ", ".join(f"{pack.cost / whole:.0%} ({len(pack.trials)} trials)" for pack in made.packs[:8])
    more = f" and {len(made.packs) - 8} more" if len(made.packs) > 8 else ""
    left = len(made.trials) - len(made.done)
    replicas = sum(trial.config.training.seeds for pack in made.packs for trial in pack.trials)
    print(f"study {made.study}: {len(made.trials)} trials, {len(made.done)} done or reused, {left} to run")
    if reasons:
        from memsweep.sweep.planning.reuse import by_reason, examples

        print(f"not reused: {by_reason(reasons)}")
        for line in examples(reasons) if verbose else ():
            print(f"  {line}")
    if made.protocol != MATCHED:
        print(f"protocol: {made.protocol}, under the study's own settings")
    print(
        f"to run: {replicas} replicas in {len(made.packs)} packs" + (f"; work shares {shares}{more}" if shares else "")
    )
    _print_asked(made.resources)


def print_search_plan(sweep: SweepConfig, waves: Sequence[Wave], stored: int) -> None:
    """The cells of a search, how many rows it may have at most, and how many are expected.

    Args:
        sweep: a study with a search.
        waves: what it is expected to run.
        stored: results that the study's folder holds already.
    """
    from memsweep.sweep.estimate.expected_load import stages

    search, confirm, cells = sweep.search, sweep.confirm, len(sweep.rows)
    if search is None:
        raise ValueError(f"the study {sweep.name!r} searches nothing")
    settings = search.settings
    each = stages(search, sweep.rows[0].training.steps)
    searched = f"{counted(settings.trials, 'suggestion')} of {settings.algorithm}, {settings.batch} at once"
    where = f"in each of {counted(cells, 'cell')}" if settings.scope == "cell" else f"for all {counted(cells, 'cell')}"
    print(f"study {sweep.name}: {searched}, {where}")
    print(f"searched: {', '.join(search.space)}; for {', '.join(settings.objective)}")
    if len(each) > 1:
        steps = ", ".join(str(stage.until) for stage in each)
        print(f"{settings.scheduler.name} looks after {steps} steps: at most {len(each)} rows for a suggestion")
    most = cells * settings.trials * len(each)
    again = cells * confirm.top if confirm is not None else 0
    expected = sum(len(pack.trials) * wave.times for wave in waves for pack in wave.packs) - again
    about = f", about {expected:.0f} expected" if len(each) > 1 else ""
    print(f"to run: at most {counted(most, 'row')} of {sweep.rows[0].training.seeds} replicas{about}")
    if confirm is not None:
        print(f"then {counted(again, 'row')} of {confirm.seeds} fresh replicas to confirm the best of each cell")
    if stored:
        print(f"{counted(stored, 'result')} stored already: what the search asks for again is not run again")
    _print_asked(sweep.resources)


def print_estimate(made: Estimate, stored: float, *, probed: bool) -> None:
    """How long the work will take, how much memory and disk, and how sure that is.

    Args:
        made: the estimate.
        stored: bytes of a row of this study's stored results; 0 where there is none.
        probed: something was to be measured.
    """
    from memsweep.sweep.driver.progress_view import duration

    gib, mib, kib = 2**30, 2**20, 2**10
    alone = f"{duration(made.work)} of one pack after the other"
    if made.seconds is None:
        print(f"expected: {alone}; this machine cannot hold a pack, so its hours follow from the cluster's")
    else:
        at_once = f"{counted(made.slots, 'pack')} at once"
        print(f"expected on this machine, {at_once}: {duration(made.seconds)} ({alone})")
        print(f"  and some {10 + made.starting:.0f} s for Ray and its workers to start")
    kinds, measured = made.kinds
    if measured:
        others = "" if measured == kinds else f", {made.measured:.0%} of the work; the others by the cost model"
        print(f"  measured on {measured} of {counted(kinds, 'kind')} of programs{others}")
        print(f"  right within a factor of {made.factor:g}, where nothing else runs and no training ends early")
    else:
        why = "nothing was measured" if probed else "nothing was measured (--no-probe)"
        near = (
            f"within a factor of {made.factor:g} for models of one recurrent layer and residual_stack, ten times too "
            "short for other deep ones"
        )
        print(f"  by the cost model alone, which is right {near}: {why}")
    for sentence in made.why_not:
        print(f"  {sentence}")
    if made.memory:
        together = f", {made.slots} at once {made.slots * made.memory / gib:.2f} GiB" if made.slots > 1 else ""
        print(f"memory: {made.memory / mib:.0f} MiB for the largest pack beyond its bare process{together} (measured)")
    else:
        print("memory: not measured")
    disk, how = (stored, "as its stored rows") if stored else (made.disk, "measured on rows of full size")
    if disk:
        total = disk * made.rows
        size = f"{total / gib:.2f} GiB" if total >= gib else f"{total / mib:.1f} MiB"
        print(f"disk: {size}, {disk / kib:.0f} KiB a row ({how}); MLflow's copy and the report not counted")
    else:
        print("disk: not measured")


def _print_asked(resources: ResourcesConfig) -> None:
    asked = f"{resources.cpus:g} CPU, {resources.card:g} GPU"
    print(f"each pack asks for {asked}" + (f" for each of {resources.workers} workers" * (resources.workers > 1)))


def print_difference(
    made: Plan, rows: Mapping[str, Row], reuse: Reuse, left_alone: Collection[str], not_now: int
) -> None:
    """What a verb is about to do, beside what the study is already; before it does it."""
    from memsweep.sweep.store.journal import State

    planned = {trial.identity for trial in made.trials}
    study = word(made.study)
    left = sum(len(pack.trials) for pack in made.packs)
    parts = [f"{len(reuse.here)} done"] if reuse.here else []
    parts += [f"{len(reuse.elsewhere)} reused from other studies"] if reuse.elsewhere else []
    parts += [f"{left} to run in {counted(len(made.packs), 'pack')}" if left else "nothing to run"]
    parts += [f"{not_now} not now (memsweep resume {study})"] if not_now else []
    print(f"{made.study}: {counted(len(planned), 'row')}: {', '.join(parts)}")
    new = len(planned - rows.keys()) if rows else 0
    gone = sum(name not in planned and row.state is not State.CANCELLED for name, row in rows.items())
    dead = sum(name in planned and row.state is State.RUNNING for name, row in rows.items())
    again = [name for name in planned - reuse.all - set(left_alone) if name in rows and rows[name].failures]
    if new:
        print(f"  {counted(new, 'row')} added to the plan")
    if gone:
        print(f"  {counted(gone, 'row')} of the earlier plan taken out: cancelled; results stay")
    if dead:
        print(f"  {counted(dead, 'row')} ran when the last driver died: queued again")
    if again and not not_now:
        print(f"  {counted(len(again), 'row')} failed before: tried again")
    for name, fault in reuse.damaged.items():
        print(f"  {name}: damaged, computed anew: {fault}")
    for name in sorted(left_alone):
        print(f"  {name}: left alone, it failed {rows[name].failures} times in the same way: {rows[name].way[:200]}")
    if left_alone:
        print(f"  to try anyway: memsweep retry {study} --force")


def print_status(
    plan: StoredPlan,
    rows: Mapping[str, Row],
    who: tuple[Holder, float] | None,
    failures: Mapping[str, Any],
    damaged: Mapping[str, StoreError],
    search: SearchHistory | None = None,
) -> None:
    """How many rows are in each state, how far a search is, what failed or is damaged and why, and who is at work."""
    from collections import Counter

    from memsweep.sweep.store.journal import Row, State

    of_plan = {name: rows.get(name, Row()) for name in plan.rows}
    counts = Counter(row.state for row in of_plan.values())
    cancelled = sum(row.state is State.CANCELLED for name, row in rows.items() if name not in of_plan)
    done = sum(row.state.has_result for row in of_plan.values())
    print(f"{plan.study}: {done} of {counted(len(of_plan), 'row')} have a result")
    for state in State:
        if count := counts[state] + (cancelled if state is State.CANCELLED else 0):
            print(f"  {count:>6} {state.value.replace('_', ' '):<14} {state.explanation}")
    if search is not None:
        _print_search(search)
    for name, failure in failures.items():
        if name in of_plan:
            times = f" ({of_plan[name].failures} times in the same way)" if of_plan[name].failures > 1 else ""
            print(f"  {name}: {failure['outcome']}{times}: {first_line(str(failure.get('error', '')))}")
    for name, fault in damaged.items():
        print(f"  {name}: {first_line(str(fault))}")
    if who is not None:
        print(f"at work: {who[0]}, last heard {who[1]:.0f} s ago")
        return
    left = done < len(of_plan) or (search is not None and not search.ended)
    print("nobody is at work on it" + (f"; to finish it: memsweep resume {word(plan.study)}" if left else ""))


def _print_search(search: SearchHistory) -> None:
    from collections import Counter

    from memsweep.search.suggestions import SuggestionState

    states = Counter(member.state for member in search.suggestions)
    ended = len(search.suggestions) - states[SuggestionState.RUNNING]
    parts = [f"{states[state]} {state}" for state in SuggestionState if states[state]]
    rest = "the winners are known" if search.ended else "more rounds follow"
    print(f"search: {ended} of {counted(len(search.suggestions), 'suggestion')} ended ({', '.join(parts)}); {rest}")


def counted(count: int, noun: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def first_line(text: str) -> str:
    """The first line of a text, at most 300 characters of it."""
    return (text.splitlines() or [""])[0][:300]


def word(study: str) -> str:
    """A study's name as one word of a shell."""
    return shlex.quote(study)


def print_end(made: Plan, summary: RunSummary, paths: ReportPaths, seconds: float) -> None:
    """The verdicts, what was done, what failed and why, and where to look."""
    from memsweep.report import table_text
    from memsweep.sweep.driver.progress_view import duration

    finished = len(made.done) + len(summary.finished)
    print()
    print(table_text(paths))
    reused = f", {len(made.done)} of them reused" if made.done else ""
    print(f"{finished}/{len(made.trials)} done{reused}; {duration(seconds)}")
    if summary.finished:
        print(profile_text(summary.profile))
    if summary.diverged:
        print(f"{summary.diverged} diverged: their errors are inf in the report")
    for identity, failure in list(summary.failed.items())[:5]:
        print(f"{failure['outcome']}: {identity}: {first_line(failure['error'])}", file=sys.stderr)
        print(failure["traceback"], file=sys.stderr)
    if len(summary.failed) > 5:
        print(f"{len(summary.failed) - 5} more failed: the report has every traceback", file=sys.stderr)
    print(f"report:    {shown(paths.page)}{_also(paths)}")
    print(f"verdicts:  {shown(paths.verdicts)}")


def print_stop(summary: RunSummary, left: int, study: str) -> None:
    """What stopped a run before its end, what is left, and how to go on.

    Args:
        summary: of the run.
        left: rows of the plan that have neither a result nor failed for good in this run; a search may ask for more.
        study: its name.
    """
    kept = "what is finished is kept. Run the same command again to go on, or: memsweep resume " + word(study)
    if summary.lost:
        print(f"{summary.lost}; {kept}", file=sys.stderr)
    elif summary.limit:
        print(f"stopped at a limit: {summary.limit}. {counted(left, 'row')} left; {kept}")
    elif summary.interrupted:
        print(f"interrupted: {kept}")


def _also(paths: ReportPaths) -> str:
    """Where everybody finds a report that lies in a bucket; ``paths`` are of this machine's copy."""
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
    """How to see the runs in MLflow."""
    page = f"/#/experiments/{experiment}/runs" if experiment else ""
    if not uri.startswith("sqlite"):
        print(f"MLflow:    {uri}{page if uri.startswith('http') else ''}")
        return
    here = results.local or Path("results").absolute()
    folder = "" if here == Path("results").absolute() else f" RESULTS={shlex.quote(shown(here))}"
    print(f"MLflow UI: make ui{folder}, then http://127.0.0.1:5000{page}")
    print(f"           (or: mlflow ui --host 127.0.0.1 --workers 1 --backend-store-uri {uri})")


def shown(path: Path) -> str:
    """A path as short as it can be said from the current folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
