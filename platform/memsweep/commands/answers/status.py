"""The answer of ``memsweep status`` as text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.commands.console import say
from memsweep.documents.keys.plans import StatusDocument, StatusSearchItem
from memsweep.errors import counted
from memsweep.sweep.store.typed import typed

if TYPE_CHECKING:
    from memsweep.sweep.store.filesystem import Location


def print_status(
    document: StatusDocument,
    results: Location,
    workspace: Path | None = None,
    address: str | None = None,
    job: bool = False,
) -> None:
    """Prints the trials in each state, the progress of a search, failed and damaged trials, and the running process.

    Args:
        document: of the study.
        results, workspace, address: where it was run, as of ``typed``.
        job: whether that was a job of a cluster, which another job continues.
    """
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
        words = ("submit", study, results, "--do", "resume") if job else ("resume", study, results)
        again = typed(*words, workspace=workspace, address=address)
        say("not running" + ("" if document["complete"] else f"; to finish it: {again}"))


def _print_search(search: StatusSearchItem) -> None:
    from memsweep.search.suggestions import SuggestionState

    ended = search["suggestions"] - search["states"].get(SuggestionState.RUNNING, 0)
    words = {SuggestionState.RUNNING.value: "in a round that has not ended"}
    parts = ", ".join(f"{count} {words.get(state, state)}" for state, count in search["states"].items())
    rest = "the winners are known" if search["ended"] else "more rounds follow"
    say(f"search: {ended} of {counted(search['suggestions'], 'suggestion')} ended ({parts}); {rest}")
