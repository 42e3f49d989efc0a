"""Sentences in which a run speaks of itself, before it begins and at its end: commands and Python show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from memsweep import __version__
from memsweep.errors import counted
from memsweep.redaction import redacted
from memsweep.report.formats import PAGE, REPORT
from memsweep.sweep.planning.plan_file import FILES
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.form import mismatch
from memsweep.sweep.store.typed import typed
from memsweep.sweep.store.unwritable import fallback_root
from memsweep.sweep.tracking.uri import default_uri, is_here, is_whole, tracking_uri

if TYPE_CHECKING:
    from memsweep.report.publish import ReportPaths
    from memsweep.studies.locations import Place
    from memsweep.studies.trials import Trials
    from memsweep.sweep.driver.runner import RunSummary
    from memsweep.sweep.planning.plan import Plan
    from memsweep.sweep.store.journal import TrialStatus
    from memsweep.sweep.store.results import Store


Tracking = tuple[str, str | None, str]
"""MLflow's address, the experiment, and the path of its page of runs."""
_COMPLETE = "complete"
"""The key of the note in the provenance of the plan."""


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        code: the exit code of the command: 0 done, 1 some trials have no result, 3 stopped at a limit, 130 interrupted.
        study: its name.
        trials: number of trials of the study.
        reused: how many of them had a result before the run.
        left: trials that neither have a result nor failed for good in this run; a search may add more.
        summary: of the run.
        report: None where the storage is away and gave nothing to report.
        seconds: how long the run took.
        tracking: where MLflow has the runs; None where the storage is away.
        complaint: what MLflow lacks, in words; empty where it lacks nothing.
        inline: it ran in this process, without Ray.
        resume: the command that goes on, as it works when it is typed.
    """

    code: int
    study: str
    trials: int
    reused: int
    left: int
    summary: RunSummary
    report: ReportPaths | None
    seconds: float
    tracking: Tracking | None
    complaint: str
    inline: bool
    resume: str


class _Note(TypedDict):
    """In the plan's provenance."""

    version: str
    rule: int
    uri: str
    experiment: str
    page: str


def note(tracking: Tracking, results: Location) -> dict[str, _Note]:
    """The note for the plan's provenance when the report holds all results, and MLflow all runs.

    The database of the results folder has an empty address: the folder may be moved.
    """
    from memsweep.stability.verdict.judgement import RULE_VERSION

    uri, experiment, page = tracking
    uri = "" if uri == redacted(default_uri(results)) else uri
    return {
        _COMPLETE: {
            "version": __version__,
            "rule": RULE_VERSION,
            "uri": uri,
            "experiment": experiment or "",
            "page": page,
        }
    }


def noted(provenance: Mapping[str, Any], folder: Path, results: Location) -> Tracking | None:
    """Where MLflow has the runs, as it was noted; None where the note does not hold here.

    That is so with another version of memsweep or of the verdicts' rule, with another MLflow, a database that is lost
    or damaged, and without the report.

    A server of MLflow is not asked whether it still has the runs: ``memsweep sync`` does that.

    Args:
        provenance: the plan's.
        folder: the study's.
        results: the folder of all studies.
    """
    from memsweep.stability.verdict.judgement import RULE_VERSION

    found: Any = provenance.get(_COMPLETE)
    if mismatch(found, _Note):
        return None
    uri = tracking_uri(None, results)
    noted_uri = found["uri"] or redacted(default_uri(results))
    as_now = (found["version"], found["rule"]) == (__version__, RULE_VERSION)
    same = as_now and noted_uri == redacted(uri) and is_whole(uri)
    there = same and (found["uri"] != "" or is_here(results)) and (folder / REPORT / PAGE).is_file()
    return (noted_uri, found["experiment"], found["page"]) if there else None


def first_line(text: str) -> str:
    """The first line of a text, at most 300 characters of it."""
    return (text.splitlines() or [""])[0][:300]


def _going_on(plan: Plan) -> int:
    """Trials of a grid that go on from the state of one that ended early; in a search that is the rule."""
    return 0 if plan.sweep.search else sum(bool(trial.after) for pack in plan.packs for trial in pack.trials)


def only_measured(plan: Plan) -> int:
    """How many trials of the packs are not trained, because their weights are stored."""
    return sum(bool(trial.trained[0]) for pack in plan.packs for trial in pack.trials)


def differences(
    trials: Trials, statuses: Mapping[str, TrialStatus], place: Place, address: str | None = None
) -> Iterator[str]:
    """Says what a run is about to do, compared with the journal of the study, before it does it.

    Args:
        trials: of the run.
        statuses: by the journal.
        place: where it runs.
        address: of the cluster that a person gave.
    """
    from memsweep.studies.trials import of_several_weights

    study = trials.plan.sweep.name
    planned = {trial.identity for trial in trials.plan.trials}
    yield f"{study}: {counted(len(planned), 'trial')}: {', '.join(_parts(trials, place, address))}"
    yield from of_several_weights(trials.plan.sweep) if trials.plan.packs else ()
    yield from _changes(trials, statuses, planned)
    for name, fault in trials.reuse.damaged.items():
        yield f"  {name}: damaged, recomputed: {fault}"
    gave_up = Counter((statuses[name].failures, statuses[name].kind[:200]) for name in sorted(trials.gave_up))
    for (times, kind), count in gave_up.items():
        yield f"  {counted(count, 'trial')} gave up after {times} failures in the same way: {kind}"
    if trials.gave_up:
        retry = typed("retry", study, place.results, "--force", workspace=place.workspace, address=address)
        yield f"  to try anyway: {retry}"


def _parts(trials: Trials, place: Place, address: str | None) -> Iterator[str]:
    """How many trials are done, reused, to run, only measured, continued and left for later."""
    plan, reuse = trials.plan, trials.reuse
    left = sum(len(pack.trials) for pack in plan.packs)
    if reuse.here:
        yield f"{len(reuse.here)} done"
    if left_here := len(reuse.left_here):
        yield f"{left_here} taken from {fallback_root()}, where an earlier run left them"
    if others := len(reuse.elsewhere) - left_here:
        yield f"{others} reused from other studies"
    yield f"{left} to run in {counted(len(plan.packs), 'pack')}" if left else "nothing to run"
    if measured := only_measured(plan):
        yield f"{measured} of them only measured, from stored weights"
    if going_on := _going_on(plan):
        yield f"{going_on} of them go on from a kept state"
    if trials.postponed:
        resume = typed("resume", plan.sweep.name, place.results, workspace=place.workspace, address=address)
        yield f"{trials.postponed} not now ({resume})"


def _changes(trials: Trials, statuses: Mapping[str, TrialStatus], planned: Set[str]) -> Iterator[str]:
    """Planned trials that are new, were running or have failed, and trials that left the plan; a line for each kind."""
    from memsweep.sweep.store.journal import State

    states = {name: status.state for name, status in statuses.items()}
    new = len(planned - statuses.keys()) if statuses else 0
    removed = sum(name not in planned and state is not State.CANCELLED for name, state in states.items())
    without = planned - trials.reuse.all
    stopped = sum(name in without and state is State.RUNNING for name, state in states.items())
    failed = {name for name, status in statuses.items() if status.failures}
    again = len(failed & without - trials.gave_up)
    if new:
        yield f"  {counted(new, 'trial')} added to the plan"
    if removed:
        yield f"  {counted(removed, 'trial')} no longer planned: cancelled; results stay"
    if stopped:
        yield f"  {counted(stopped, 'trial')} ran when the last driver ended: queued again"
    if again and not trials.postponed:
        yield f"  {counted(again, 'trial')} failed before: tried again"


def taken_over(study: str, results: Location) -> str:
    """Says that another process has taken the lease of a study from this one."""
    return (
        "this process was silent for so long that another one took its sweep over. What it had finished is stored; "
        f"see: {typed('status', study, results)}"
    )


def folder_gone(store: Store, had: Collection[str]) -> str:
    """Says that a study's folder has gone while it ran; empty where it is there with all results.

    Args:
        store: the study's results.
        had: identities that had a result.

    Raises:
        StoreError: the storage does not answer.
    """
    gone = [name for name in set(had) - store.identities() if not store.has(name)]
    with storage_errors("read", store.location):
        if not gone and any(store.location.exists(name) for name in FILES):
            return ""
    results = f", and with it the results of {counted(len(gone), 'trial')}" if gone else ""
    what = f"{store.location} was deleted, moved or emptied while its study ran{results}"
    return f"{what}. Put it back, or run the sweep again."


def stopped(ending: Ending) -> str:
    """Says what stopped a run early, how many trials are left, and how to go on; empty where nothing did."""
    summary, left = ending.summary, counted(ending.left, "trial")
    again = "what is finished is kept. Run the same command again to go on"
    kept = f"{again}, or: {ending.resume}" if ending.left else again  # resume begins no round
    if summary.outage:
        again = f"run the same command again, or: {ending.resume}"
        return f"stopped: {summary.outage}. {left} left; when it is mended, {again}"
    if summary.lost:
        return f"{summary.lost}; {kept}"
    if summary.limit and not ending.left:
        return f"stopped at a limit: {summary.limit}. The next round has not begun; {again}"
    if summary.limit:
        return f"stopped at a limit: {summary.limit}. {left} left; {kept}"
    return f"interrupted: {kept}" if summary.interrupted else ""
