"""Rows of measures that their tables cannot take: they are not measured, and cost nothing else."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from memsweep import registry
from memsweep.sweep.store import tables as table_files

if TYPE_CHECKING:
    from memsweep.trial import TrialResult


def without_misfits(identity: str, result: TrialResult) -> TrialResult:
    """A result without the tables of measures whose rows cannot be stored; its summary says why."""
    wrong = {}
    for name in table_files.of_measures().keys() & result.tables.keys():
        if told := table_files.misfit(name, result.tables[name].assign(identity=identity)):
            wrong[name] = told
    if not wrong:
        return result
    summary = dict(result.summary)
    for measure in (registry.get(registry.MEASURE, name) for name in registry.names(registry.MEASURE)):
        if measure.table in wrong:
            with contextlib.suppress(Exception):  # code of others, on rows that are wrong
                for key in measure.summary(result.tables[measure.table].to_dict("records")):
                    summary.pop(key, None)
    texts = [str(summary["not_measured"])] if "not_measured" in summary else []
    texts += [f"{name.replace('_', ' ')}: {told}" for name, told in sorted(wrong.items())]
    kept = {name: table for name, table in result.tables.items() if name not in wrong}
    return replace(result, summary=summary | {"not_measured": "; ".join(texts)}, tables=kept)
