"""What the verbs of the command line print: plans, endings, paths."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memsweep.errors import StoreError
    from memsweep.report import ReportPaths
    from memsweep.sweep.journal import Row
    from memsweep.sweep.lease import Holder
    from memsweep.sweep.phases import Profile
    from memsweep.sweep.plan import Plan
    from memsweep.sweep.plan_file import StoredPlan
    from memsweep.sweep.reusable import Reuse
    from memsweep.sweep.reuse import Reason
    from memsweep.sweep.runner import RunSummary
    from memsweep.sweep.storage import Place


def print_plan(
    made: Plan,
    here: set[str],
    elsewhere: Mapping[str, Place],
    reasons: Mapping[str, Reason] | None = None,
    *,
    verbose: bool = False,
) -> None:
    """Every row with what varies and what will become of it, then the work that is left and why it is.

    Args:
        made: the plan.
        here: identities that this study holds.
        elsewhere: identities that another study holds -> its folder.
        reasons: why the other rows are not reused, see ``memsweep.sweep.reuse``.
        verbose: also say of a few rows what exactly is different.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from memsweep.config.canonical import flatten, to_dict
    from memsweep.config.protocols import MATCHED

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
    resources = made.resources
    print(f"study {made.study}: {len(made.trials)} trials, {len(made.done)} done or reused, {left} to run")
    if reasons:
        from memsweep.sweep.reuse import by_reason, examples

        print(f"not reused: {by_reason(reasons)}")
        for line in examples(reasons) if verbose else ():
            print(f"  {line}")
    if made.protocol != MATCHED:
        print(f"protocol: {made.protocol}, under the study's own settings")
    print(
        f"to run: {replicas} replicas in {len(made.packs)} packs" + (f"; work shares {shares}{more}" if shares else "")
    )
    asked = f"{resources.cpus:g} CPU, {resources.card:g} GPU"
    print(f"each pack asks for {asked}" + (f" for each of {resources.workers} workers" * (resources.workers > 1)))


def print_difference(
    made: Plan, rows: Mapping[str, Row], reuse: Reuse, left_alone: Collection[str], not_now: int
) -> None:
    """What a verb is about to do, beside what the study is already; before it does it."""
    from memsweep.sweep.journal import State

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
) -> None:
    """How many rows are in each state, what failed or is damaged and why, and who is at work."""
    from collections import Counter

    from memsweep.sweep.journal import Row, State

    of_plan = {name: rows.get(name, Row()) for name in plan.rows}
    counts = Counter(row.state for row in of_plan.values())
    cancelled = sum(row.state is State.CANCELLED for name, row in rows.items() if name not in of_plan)
    done = sum(row.state.has_result for row in of_plan.values())
    print(f"{plan.study}: {done} of {counted(len(of_plan), 'row')} have a result")
    for state in State:
        if count := counts[state] + (cancelled if state is State.CANCELLED else 0):
            print(f"  {count:>6} {state.value.replace('_', ' '):<14} {state.explanation}")
    for name, failure in failures.items():
        if name in of_plan:
            times = f" ({of_plan[name].failures} times in the same way)" if of_plan[name].failures > 1 else ""
            print(f"  {name}: {failure['outcome']}{times}: {first_line(str(failure.get('error', '')))}")
    for name, fault in damaged.items():
        print(f"  {name}: {first_line(str(fault))}")
    if who is not None:
        print(f"at work: {who[0]}, last heard {who[1]:.0f} s ago")
        return
    print(
        "nobody is at work on it"
        + (f"; to finish it: memsweep resume {word(plan.study)}" if done < len(of_plan) else "")
    )


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
    from memsweep.sweep.view import duration

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


def _also(paths: ReportPaths) -> str:
    """Where everybody finds a report that lies in a bucket; ``paths`` are of this machine's copy."""
    return f" (a copy; for all: {paths.uri})" if paths.uri.startswith("s3://") else ""


def profile_text(profile: Profile) -> str:
    """Where the time went: ``work 93 % (training 71, perturbation 20, storing 2), scheduling and idle 7 %``."""
    from memsweep.sweep.phases import WORK

    shares = {name: round(100 * profile.share(name)) for name in WORK}
    largest = sorted((name for name in WORK if shares[name]), key=lambda name: -shares[name])
    parts = ", ".join(f"{name} {shares[name]}" for name in largest)
    idle = round(100 * profile.scheduling)
    return f"time: work {100 - idle} %{f' ({parts})' if parts else ''}, scheduling and idle {idle} %"


def print_tracking(uri: str, results: Place, experiment: str | None) -> None:
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
