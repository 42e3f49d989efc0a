"""The results of a study that was run until its questions were decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memsweep.report.analysis.contents import Contents
from memsweep.studies.decide.decisions import Decision
from memsweep.studies.python.results import Results
from memsweep.sweep.store.filesystem import Location

if TYPE_CHECKING:
    import pandas as pd


class Decided(Results):
    """Results, and how each question stands.

    Args:
        location: of the study.
        contents: of its report.
        decisions: of its questions.
    """

    def __init__(self, location: Location, contents: Contents, decisions: Sequence[Decision]) -> None:
        super().__init__(location, contents)
        self._decisions = tuple(decisions)

    @property
    def decisions(self) -> pd.DataFrame:
        """A row per condition and ball: ``name``, ``state`` (decided, hopeless, limit, open), ``verdict``,
        ``core_seconds`` of its trials, ``why`` and ``needed_core_hours`` of a hopeless one."""
        import pandas as pd

        names = ["name", "state", "verdict", "core_seconds", "why", "needed_core_hours"]
        rows = [(one.name, one.state, one.verdict, one.seconds, one.why, one.needed) for one in self._decisions]
        return pd.DataFrame(rows, columns=names)
