"""The study of a module, and the results of a study that was run until its questions were decided."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.study import SweepConfig
from memsweep.errors import ConfigError
from memsweep.models.module.in_memory import PLACE
from memsweep.report.analysis.contents import Contents
from memsweep.studies.cells import name_of_callable
from memsweep.studies.decide.decisions import Decision
from memsweep.studies.decide.smallest import names_module, smallest
from memsweep.studies.python.results import Results
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.typed import typed

if TYPE_CHECKING:
    import pandas as pd

IN_A_DICT = (
    "A study of a class is a dict: ms.sweep or ms.decide of {'name': 'mine', 'task': ..., 'model': {'name': 'module', "
    "'factory': Net}, ...}"
)


def module_of(study: Any, kernel: str | None) -> str:
    """The name of the module that stands in place of a study; empty where a study is meant.

    Raises:
        ConfigError: it is a class of no file, or a kernel stands beside a study.
        ModuleError: the class cannot be imported.
    """
    if callable(study):
        name = name_of_callable(study)
        if name.startswith(f"{PLACE}:"):
            wrong = f"{name.partition(':')[2].partition('@')[0]} is in no file, whose name the study could have"
            raise ConfigError([f"{wrong}. {IN_A_DICT}"], "the study")
        return name
    if isinstance(study, str) and names_module(study):
        return study
    if kernel is not None:
        raise ConfigError(["kernel is the memory for a module; of a study, 'task.kernel=NAME' sets it"], "decide")
    return ""


def of_module(
    module: str, kernel: str | None, words: Sequence[str], workspace: Path, results: Location
) -> tuple[SweepConfig, str]:
    """The first plan of a module, and the command that makes the same one.

    Args:
        module: its name.
        kernel: None: the usual one.
        words: overrides.
        workspace, results: the folders.

    Raises:
        ConfigError: as of ``smallest``.
    """
    flags = ["--kernel", kernel] if kernel is not None else []
    found = smallest(module, kernel, words, workspace)
    return found, typed("decide", module, results, *flags, *words, workspace=workspace)


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
