"""Rules by which some trials of a study ask for other resources than the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from memsweep.config.core.fields import setting
from memsweep.config.core.reflect import keys, value_of
from memsweep.config.schema.canonical import MISSING
from memsweep.config.schema.search import same

_ASKED = ("cpus", "gpus", "node_memory", "accelerator")
"""The fields of the resources that a rule may set."""


@dataclass(frozen=True, kw_only=True)
class ResourceRule:
    """Other resources for the trials for which a field lies in a range, or has one of some values."""

    field: str = setting(doc="dotted path of a trial's field, such as model.width")
    above: float | None = setting(None, "it holds where the field is greater than this")
    at_most: float | None = setting(None, "it holds where the field is at most this")
    values: tuple[bool | int | float | str, ...] | None = setting(None, "it holds where the field is one of these")
    cpus: float | None = setting(None, "CPU cores per process of such trials", above=0.0)
    gpus: float | None = setting(None, "share of a GPU of such trials", at_least=0.0, at_most=1.0)
    node_memory: float | None = setting(
        None, "GiB of a node's memory that such trials ask a cluster for", at_least=0.0, at_most=1e6
    )
    accelerator: str | None = setting(None, "type of the GPU that such trials need")

    def problems(self) -> Iterable[str]:
        if self.above is None and self.at_most is None and self.values is None:
            yield "says of no trial that it holds for it: give above, at_most or values"
        if self.above is not None and self.at_most is not None and self.above >= self.at_most:
            yield (
                f"holds for no number, got above {self.above:g} and at_most {self.at_most:g}: give an at_most that is "
                "greater than above"
            )
        if not self.changes:
            yield f"changes nothing: give {', '.join(_ASKED[:-1])} or {_ASKED[-1]}"

    @property
    def changes(self) -> dict[str, Any]:
        """The fields that it sets, with their values."""
        return {name: value for name in _ASKED if (value := getattr(self, name)) is not None}

    @property
    def condition(self) -> str:
        """When it holds: ``model.width above 256``."""
        parts = [f"above {self.above:g}"] if self.above is not None else []
        parts += [f"at most {self.at_most:g}"] if self.at_most is not None else []
        parts += [f"in {', '.join(map(str, self.values))}"] if self.values is not None else []
        return f"{self.field} {' and '.join(parts)}"

    @property
    def words(self) -> str:
        """The same in words: ``cpus 4, gpus 1``."""
        return ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in self.changes.items()
        )

    def holds(self, trial: Any) -> bool:
        """Whether it holds for a trial; for one that lacks the field it does not."""
        value = _at(trial, self.field)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.values is not None and not any(same(value, one) for one in self.values):
            return False
        if self.above is not None and not (is_number and value > self.above):
            return False
        return self.at_most is None or (is_number and value <= self.at_most)

    def problem(self, trials: Iterable[Any]) -> str:
        """Why it can hold for none of these trials; empty where it can."""
        found = [value for trial in trials if (value := _at(trial, self.field)) is not MISSING]
        if not found:
            return "no trial has such a field. Fields are written like axes of a grid: model.width"
        ranged = self.above is not None or self.at_most is not None
        if ranged and not any(isinstance(value, int | float) for value in found):
            return "is no number, which above and at_most compare. Give values"
        return ""


def _at(config: Any, path: str) -> Any:
    """The value at a path of a config, of a part its name; ``MISSING`` where there is none."""
    for key in path.split("."):
        if not dataclasses.is_dataclass(config):
            return MISSING
        if key == "name" and hasattr(config, "name"):
            config = config.name
        elif (field := keys(type(config)).get(key)) is not None:
            config = value_of(config, field)
        else:
            return MISSING
    return getattr(config, "name", MISSING) if dataclasses.is_dataclass(config) else config
