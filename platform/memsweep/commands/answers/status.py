"""The answer of ``memsweep status``: the state of every trial, the progress of a search, and who runs the study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.commands.answers.run import failures_item
from memsweep.commands.console import say
from memsweep.documents.keys.plans import StatusDocument, StatusSearchItem, StatusTrialItem
from memsweep.errors import counted
from memsweep.report.read.failures import failure_groups
from memsweep.studies.ending import first_line
from memsweep.sweep.store.typed import typed

if TYPE_CHECKING:
    from memsweep.errors import StoreError
    from memsweep.search.history import SearchHistory
    from memsweep.sweep.planning.plan_file import StoredPlan
    from memsweep.sweep.store.filesystem import Location
    from memsweep.sweep.store.journal import TrialStatus
    from memsweep.sweep.store.lease import Holder


def status_document(
    plan: StoredPlan,
    statuses: Mapping[str, TrialStatus],
    who: Holder | None,
    failures: Mapping[str, Any],
    damaged: Mapping[str, StoreError],
    search: SearchHistory | None = None,
) -> StatusDocument:
    """The document.

    Args:
        plan: the stored plan.
        statuses: identity -> state, of the journal; also those of trials that are no longer in the plan.
        who: the process that runs the study; None: none does.
        failures: identity -> the last failure of a trial without a result.
        damaged: identity -> what is wrong with its stored files.
        search: the history of the study's search.
    """
    from memsweep.sweep.store.journal import State, TrialStatus

    of_plan = {name: statuses.get(name, TrialStatus()) for name in plan.rows}
    states = Counter(status.state for status in of_plan.values())
    states[State.CANCELLED] += sum(s.state is State.CANCELLED for name, s in statuses.items() if name not in of_plan)
    done = sum(status.state.has_result for status in of_plan.values())
    return {
        "study": plan.study,
        "trials": [_trial(name, status, failures.get(name), damaged.get(name)) for name, status in of_plan.items()],
        "states": {state.value: states[state] for state in State if states[state]},
        "done": done,
        "left": len(of_plan) - done,
        "complete": done == len(of_plan) and (search is None or search.ended),
        "running": None
        if who is None
        else {"host": who.host, "pid": who.pid, "since": who.since, "command": who.command},
        "search": None if search is None else _search(search),
        "failures": failures_item(failure_groups(plan.rows, failures)),
    }


def _trial(
    identity: str, status: TrialStatus, failure: Mapping[str, Any] | None, damage: StoreError | None
) -> StatusTrialItem:
    return {
        "identity": identity,
        "state": status.state.value,
        "since": status.since,
        "failures": status.failures,
        "outcome": None if failure is None else str(failure["outcome"]),
        "error": None if failure is None else first_line(str(failure.get("error", ""))),
        "damaged": None if damage is None else first_line(str(damage)),
    }


def _search(search: SearchHistory) -> StatusSearchItem:
    from memsweep.search.suggestions import SuggestionState

    states = Counter(one.state for one in search.suggestions)
    return {
        "suggestions": len(search.suggestions),
        "states": {str(state): states[state] for state in SuggestionState if states[state]},
        "ended": search.ended,
    }


def print_status(document: StatusDocument, results: Location, workspace: Path | None = None) -> None:
    """Prints the trials in each state, the progress of a search, failed and damaged trials, and the running process."""
    from memsweep.sweep.store.journal import State

    trials, study = document["trials"], document["study"]
    have = "has" if len(trials) == 1 else "have"
    say(f"{study}: {document['done']} of {counted(len(trials), 'trial')} {have} a result")
    for state, count in document["states"].items():
        say(f"  {count:>6} {state.replace('_', ' '):<14} {State(state).explanation}")
    if document["search"] is not None:
        _print_search(document["search"])
    said = {State(state).explanation for state in document["states"]}
    for line in document["failures"]["words"]:
        if line not in said:
            say(line)
    times = max((trial["failures"] for trial in trials if trial["outcome"] is not None), default=0)
    if times > 1:
        say(f"  tried {times} times at most, and failed in the same way")
    for trial in trials:
        if trial["damaged"] is not None:
            say(f"  {trial['identity']}: {trial['damaged']}")
    if (who := document["running"]) is not None:
        say(f"running: process {who['pid']} on {who['host']}, since {who['since']} ({who['command']})")
    else:
        again = typed("resume", study, results, workspace=workspace)
        say("not running" + ("" if document["complete"] else f"; to finish it: {again}"))


def _print_search(search: StatusSearchItem) -> None:
    from memsweep.search.suggestions import SuggestionState

    ended = search["suggestions"] - search["states"].get(SuggestionState.RUNNING, 0)
    parts = ", ".join(f"{count} {state}" for state, count in search["states"].items())
    rest = "the winners are known" if search["ended"] else "more rounds follow"
    say(f"search: {ended} of {counted(search['suggestions'], 'suggestion')} ended ({parts}); {rest}")
