"""A warm start: what an earlier study found, as results that the sampler hears before its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.canonical import flatten, to_dict
from memsweep.config.schema.search import same
from memsweep.errors import MemsweepError, StoreError
from memsweep.search.observations import Outcomes
from memsweep.search.suggest import space as spaces
from memsweep.search.trials import Suggestion, Told

if TYPE_CHECKING:
    from memsweep.config.schema.search import Search
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.sweep.store.results import Store

_FREE = {
    "training." + name
    for name in ("seeds", "first_seed", "data_seed", "steps", "until", "turns", "validate_every", "checkpoint_every")
}
"""Fields in which an earlier row may differ from the cell: which seeds, and for how long."""
_PARTS = ("task.", "model.", "training.")


class Earlier:
    """The results of an earlier study, cell by cell.

    A row is heard in a cell whose task, model and training it shares, but for the searched fields, its seeds, its data
    and its number of steps, and if its searched fields lie in their domains. Of rows with the same settings the one
    that trained longest counts. Rows of population-based training, whose settings changed on the way, are left out.

    Args:
        store: the earlier study's results.
        search: the present search: its space and objectives.

    Raises:
        StoreError: the storage cannot be read.
    """

    def __init__(self, store: Store, search: Search) -> None:
        self._space = search.space
        self._outcomes = Outcomes(store, search.settings.objective)
        records = sorted(store.records(), key=lambda record: str(record["identity"]))
        self._rows = {str(record["identity"]): flatten(record["config"]) for record in records}
        self._heard: set[str] = set()
        self._cells = 0

    def __call__(self, cell: TrialConfig) -> list[tuple[Suggestion, Told]]:
        """What the sampler of a cell hears first, numbered from below up to -1; the same at every call."""
        self._cells += 1
        wanted = flatten(to_dict(cell))
        longest: dict[str, tuple[int, str, dict[str, Any]]] = {}
        for identity, row in self._rows.items():
            if (values := self._fitting(row, wanted)) is None:
                continue
            self._heard.add(identity)
            name, steps = spaces.key(values), _steps(row)
            if name not in longest or steps > longest[name][0]:
                longest[name] = steps, identity, values
        found = []
        for number, (steps, identity, values) in enumerate(longest.values(), start=-len(longest)):
            measured = self._measured(identity)
            stopped = bool(self._rows[identity].get("training.until"))
            found.append((Suggestion(number, values), Told(number, measured, steps, stopped=stopped)))
        return found

    def news(self) -> str:
        """How many of the earlier rows were heard, in a sentence; empty where no cell has asked."""
        if not self._cells:
            return ""
        left = len(self._rows) - len(self._heard)
        text = f"{len(self._heard)} earlier rows start the search"
        return f"{text}; {left} lie outside of its cells or domains" if left else text

    def _fitting(self, row: Mapping[str, Any], cell: Mapping[str, Any]) -> dict[str, Any] | None:
        """The searched values of a row that belongs to a cell, or None."""
        if row.get("training.turns"):
            return None
        values: dict[str, Any] = {}
        for path in spaces.order(self._space):
            if not spaces.applies(path, self._space, values, cell):
                continue
            value = _field(row, path)
            if value is None or not spaces.holds(self._space[path], value):
                return None
            values[path] = value
        others = [path for path in {*row, *cell} if path.startswith(_PARTS) and not self._free(path)]
        if any(not same(row.get(path), cell.get(path)) for path in others):
            return None
        return values

    def _free(self, path: str) -> bool:
        """Whether a field may differ: it is searched, lies within a part that is, or says for how long."""
        return path in _FREE or any(path == searched or path.startswith(f"{searched}.") for searched in self._space)

    def _measured(self, identity: str) -> tuple[float, ...] | None:
        try:
            return self._outcomes.of(identity)
        except StoreError:
            raise
        except MemsweepError:
            return None  # it did not measure this objective


def _field(row: Mapping[str, Any], path: str) -> Any:
    """A field of a flat config; a part with fields of its own as the mapping that it was."""
    if path in row:
        return row[path]
    inner = {key.removeprefix(f"{path}."): value for key, value in row.items() if key.startswith(f"{path}.")}
    return inner or None


def _steps(row: Mapping[str, Any]) -> int:
    return int(row.get("training.until") or row["training.steps"])
