"""A warm start: results of an earlier study, which the sampler is told before its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.canonical import flatten, to_dict
from memsweep.config.schema.search import same
from memsweep.config.search.domains import order
from memsweep.errors import MemsweepError, StoreError
from memsweep.search.objectives import Objectives
from memsweep.search.suggest.space import suggestion_key
from memsweep.search.suggestions import Result, Suggestion

if TYPE_CHECKING:
    from memsweep.config.schema.search import Search
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.sweep.store.results import Store

_FREE = {
    "training." + name
    for name in ("seeds", "first_seed", "data_seed", "steps", "until", "turns", "validate_every", "checkpoint_every")
}
"""Fields in which an earlier trial may differ from the cell: which seeds, and for how long."""
_PARTS = ("task.", "model.", "training.")


class EarlierStudy:
    """The results of an earlier study, cell by cell.

    A trial counts in a cell if it has the cell's task, model and training, apart from the searched fields, its seeds,
    its data and its number of steps, and if its searched fields lie in their domains. Of trials with equal settings,
    the one that trained longest counts. Trials of population-based training, whose settings changed, do not count.

    Args:
        store: the earlier study's results.
        search: the present search: its space and objectives.

    Raises:
        StoreError: the storage cannot be read.
    """

    def __init__(self, store: Store, search: Search) -> None:
        self._space = search.space
        self._objectives = Objectives(store, search.settings.objective)
        records = sorted(store.records(), key=lambda record: str(record["identity"]))
        self._configs = {str(record["identity"]): flatten(record["config"]) for record in records}
        self._used: set[str] = set()
        self._cells = 0

    def __call__(self, cell: TrialConfig) -> list[tuple[Suggestion, Result]]:
        """The results for a cell's sampler, numbered from below up to -1; the same at every call."""
        self._cells += 1
        own = flatten(to_dict(cell))
        longest: dict[str, tuple[int, str, dict[str, Any]]] = {}
        for identity, config in self._configs.items():
            if (values := self._searched_values(config, own)) is None:
                continue
            self._used.add(identity)
            name, steps = suggestion_key(values), int(config.get("training.until") or config["training.steps"])
            if name not in longest or steps > longest[name][0]:
                longest[name] = steps, identity, values
        results = []
        for number, (steps, identity, values) in enumerate(longest.values(), start=-len(longest)):
            stopped = bool(self._configs[identity].get("training.until"))
            result = Result(number, self._measured(identity), steps, stopped=stopped)
            results.append((Suggestion(number, values), result))
        return results

    def summary(self) -> str:
        """How many of the earlier trials count, in a sentence; empty where no cell has asked."""
        if not self._cells:
            return ""
        left = len(self._configs) - len(self._used)
        text = f"{len(self._used)} earlier trials start the search"
        return f"{text}; {left} lie outside of its cells or domains" if left else text

    def _searched_values(self, config: Mapping[str, Any], cell: Mapping[str, Any]) -> dict[str, Any] | None:
        """The searched values of a trial that counts in a cell, or None."""
        if config.get("training.turns"):
            return None
        fixed = {path: value for path, value in cell.items() if path not in self._space}
        values: dict[str, Any] = {}
        for path in order(self._space):
            domain = self._space[path]
            if not domain.applies({**fixed, **values}):
                continue
            value = _field(config, path)
            # a whole number in a field of fractions is stored as 2.0
            plain = int(value) if domain.is_whole and isinstance(value, float) and value.is_integer() else value
            if value is None or not domain.contains(plain):
                return None
            values[path] = value
        others = [path for path in {*config, *cell} if path.startswith(_PARTS) and not self._free(path)]
        if any(not same(config.get(path), cell.get(path)) for path in others):
            return None
        return values

    def _free(self, path: str) -> bool:
        """Whether a field may differ: it is searched, lies within a part that is, or says for how long."""
        return path in _FREE or any(path == searched or path.startswith(f"{searched}.") for searched in self._space)

    def _measured(self, identity: str) -> tuple[float, ...] | None:
        try:
            return self._objectives.of(identity)
        except StoreError:
            raise
        except MemsweepError:
            return None  # it did not measure this objective


def _field(config: Mapping[str, Any], path: str) -> Any:
    """A field of a flat config; a part with fields of its own as the mapping that it was."""
    if path in config:
        return config[path]
    inner = {key.removeprefix(f"{path}."): value for key, value in config.items() if key.startswith(f"{path}.")}
    return inner or None
