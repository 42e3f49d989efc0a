"""The state of a study: that of every trial, the progress of its search, and who runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memsweep.documents.keys.plans import StatusDocument, StatusSearchItem, StatusTrialItem
from memsweep.studies.ending import first_line
from memsweep.studies.locations import stored_plan

if TYPE_CHECKING:
    from memsweep.errors import StoreError
    from memsweep.search.history import SearchHistory
    from memsweep.sweep.planning.plan_file import StoredPlan
    from memsweep.sweep.store.journal import TrialStatus
    from memsweep.sweep.store.lease import Holder
    from memsweep.sweep.store.results import Store


def read_status(store: Store) -> StatusDocument:
    """Reads the state of a study; writes nothing.

    Raises:
        MemsweepError: it has no plan, or the storage cannot be read.
    """
    from memsweep.search import history
    from memsweep.sweep.store.journal import read_statuses, recovered_statuses
    from memsweep.sweep.store.lease import holder

    made = stored_plan(store)
    stored = store.identities() & made.rows.keys()
    damaged, failures = store.faults(stored), store.failures()
    outcomes = store.outcomes(stored - damaged.keys())
    statuses, who = read_statuses(store.location), holder(store.location)
    if who is None:  # trials that a dead driver left running do not run
        statuses = recovered_statuses(statuses, made.rows, outcomes, failures)
    return status_document(made, statuses, who, failures, damaged, history.read(store.location, made))


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
    from memsweep.report.read.failures import failure_groups
    from memsweep.report.rows.failures import failures_item
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
