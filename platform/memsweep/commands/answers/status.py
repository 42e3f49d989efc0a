"""The answer of ``memsweep status`` as text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.commands.console import say
from memsweep.documents.keys.plans import StatusDocument, StatusSearchItem
from memsweep.errors import counted
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.typed import typed

if TYPE_CHECKING:
    from memsweep.sweep.store.filesystem import Location


def print_status(
    document: StatusDocument,
    folder: Location,
    workspace: Path | None = None,
    address: str | None = None,
    job: bool = False,
) -> None:
    """Prints the trials in each state, the progress of a search, failed and damaged trials, and the running process.

    Args:
        document: of the study.
        folder: of its results.
        workspace, address: where it was run, as of ``typed``.
        job: whether that was a job of a cluster, which another job continues.
    """
    from memsweep.sweep.store.journal import GIVE_UP_AFTER, State

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
    elif document["complete"]:
        say("not running")
    elif folder.name != folder_name(study):
        say(f"not running; its folder was copied or renamed: call it {folder_name(study)} to go on")
    else:
        left = [trial for trial in trials if not State(trial["state"]).has_result]
        given_up = left and all(trial["failures"] >= GIVE_UP_AFTER for trial in left)
        verb, *force = ("retry", "--force") if given_up else ("resume",)
        first, *do = ("submit", "--do", verb) if job else (verb,)
        again = typed(first, study, folder.parent, *do, *force, workspace=workspace, address=address)
        say(f"not running; to {'try them once more' if given_up else 'finish it'}: {again}")


def _print_search(search: StatusSearchItem) -> None:
    from memsweep.search.suggestions import SuggestionState

    ended = search["suggestions"] - search["states"].get(SuggestionState.RUNNING, 0)
    words = {SuggestionState.RUNNING.value: "in a round that has not ended"}
    parts = ", ".join(f"{count} {words.get(state, state)}" for state, count in search["states"].items())
    rest = "the winners are known" if search["ended"] else "more rounds follow"
    say(f"search: {ended} of {counted(search['suggestions'], 'suggestion')} ended ({parts}); {rest}")
