"""The command that adds trials to a study, as advice types it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from memsweep.errors import StoreError
from memsweep.report.read.command_line import made_by, measured_study, replaces, with_words
from memsweep.report.read.fields import fields_of_width
from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.typed import called

if TYPE_CHECKING:
    from memsweep.report.read.study import Study


def extension(study: Study, words: str) -> str:
    """The command that adds the trials of overrides: it names the study's file, and what its sweep changed.

    A study that Python made of a dict has no file: there it is the call ``ms.extend(study, ...)``. One that a command
    made of other words (``measure``, ``atlas``, ``decide`` of a module) has none, either: there it is that command with
    the overrides, and without the limits of its run, which would stop the next one as well. ``decide`` moves fields
    that are tied to the width, and keeps the settings to which a round has brought trials.
    """
    added = words.split()
    paths = [word.partition("=")[0] for word in added]
    tied = "model.width" in paths and study.search is None and len(fields_of_width(study.rows.values())) > 1
    if tied or study.replaced:
        return study.until_decided  # empty where there is no such command
    if study.is_of_words:
        return _of_words(study, added)
    kept = [word for word in study.overrides if not any(replaces(path, word) for path in paths)]
    if study.source == "":
        return called("extend", study.results, *kept, *added, workspace=study.workspace, address=study.address)
    return study.typed("extend", study.source or study.name, *kept, *added)


def _of_words(study: Study, added: list[str]) -> str:
    """The command again, with the overrides. One that measures a stored study trains nothing: that one comes first."""
    trained = measured_study(study.command)
    trials = [word for word in added if trained and not word.startswith("perturbation.")]
    again = with_words(study.command, [word for word in added if word not in trials])
    if not trials:
        return again
    before = _beside(study, trained).extended_by(" ".join(trials))
    return f"{before} && {again}" if before else ""


def _beside(study: Study, name: str) -> Study:
    """The study as another one was made that is stored beside it; one of nothing where no plan of it can be read."""
    plan = None
    with suppress(StoreError):
        plan = read_plan(study.results / folder_name(name))
    return replace(study, name=name, **made_by(plan.provenance if plan else {}))
