"""A search shown in an Optuna storage while it runs (``--optuna``), one Optuna study for each cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from memsweep.config.schema.search import CELL, PBT

if TYPE_CHECKING:
    from memsweep.commands.search_run import Searching
    from memsweep.config.schema.study import SweepConfig
    from memsweep.sweep.store.results import Store


def mirror_of(url: str, sweep: SweepConfig, store: Store, searching: Searching) -> Callable[[], list[str]]:
    """What writes the search, as far as it is, and says what kept it from doing so; each trouble is told once.

    Args:
        url: of the storage.
        sweep: the study.
        store: its results, with the round log.
        searching: its search.
    """
    if sweep.search is None:
        raise ValueError(f"the study {sweep.name!r} searches nothing")
    from memsweep.config.search.sections import modes
    from memsweep.search.history import read_suggestions
    from memsweep.search.optuna_storage import Mirror

    search, keys, told = sweep.search, searching.study_search.keys, set[str]()
    names, settled = _names(sweep), search.settings.scheduler.name != PBT
    mirrors = {
        number: Mirror(url, name, keys[number], search.space, search.settings.objective, modes(search), settled)
        for number, name in names.items()
    }

    def write() -> list[str]:
        found = read_suggestions(store.location, keys)
        troubles = {mirror.write([one for one in found if one.search == number]) for number, mirror in mirrors.items()}
        new = troubles - told - {""}
        told.update(new)
        return sorted(new)

    return write


def _names(sweep: SweepConfig) -> Mapping[int, str]:
    """Number of a search -> name of its Optuna study: ``lr_width/exp, width 8``."""
    from memsweep.config.schema.canonical import to_dict
    from memsweep.report.naming.cells import Cells

    if sweep.search is None or sweep.search.settings.scope != CELL or len(sweep.rows) == 1:
        return {0: sweep.name}
    cells = Cells.of([to_dict(row) for row in sweep.rows], sweep.search.space.keys())
    return {number: f"{sweep.name}/{cells.name(number)}" for number in range(len(sweep.rows))}
