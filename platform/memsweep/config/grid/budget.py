"""``model.parameters`` in place of ``model.width``: the widest model that has no more parameters than that.

So unlike models are compared at one cost. A model with ``features`` that are not given has as many as its width. How
many parameters a width makes depends on the task's inputs and outputs, so the width is found when task and model have
met, and a trial holds the width alone.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memsweep import registry
from memsweep.config.core.build import INVALID
from memsweep.config.core.problems import Problem, show
from memsweep.errors import ModuleError

BUDGET_KEY, PARAMETERS = "parameters", "model.parameters"
BUDGET_MEANS = "in place of width: the widest model that has no more parameters than that"
_TIED = {"features"}
_WIDEST = 1 << 20
_REFUSALS = 64
NARROWEST_BELOW = 512
"""The narrowest width of a model is below this."""


@dataclass(frozen=True)
class Budgeted:
    """A model whose width is not known yet.

    Attributes:
        model: its Config, with another width.
        parameters: how many it may have at most.
        tied: fields that follow the width.
    """

    model: Any
    parameters: int
    tied: tuple[str, ...]

    def of_width(self, width: int) -> Any:
        """The model's Config with this width."""
        return dataclasses.replace(self.model, **dict.fromkeys(("width", *self.tied), width))

    def suits(self, width: int) -> bool:
        """Whether the model can have it."""
        return not any(getattr(self.of_width(width), "problems", tuple)())

    def size(self, width: int, task: Any) -> int:
        """How many parameters this width makes."""
        return int(registry.get(registry.MODEL, self.model.name).count_parameters(self.of_width(width), task))


def without_budget(written: Mapping[str, Any], problems: list[Problem]) -> tuple[dict[str, Any], Any]:
    """A model's settings without ``parameters``, and that number as it is written."""
    rest, budget = {key: value for key, value in written.items() if key != BUDGET_KEY}, written[BUDGET_KEY]
    if "width" in rest:
        rule = "stands in place of model.width, and that is set, too. Leave one of them out (~grid.model.width)"
        problems.append(Problem(PARAMETERS, rule, show(budget)))
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        problems.append(Problem(PARAMETERS, "must be a whole number of at least 1", show(budget)))
    return rest, budget


def budgeted(model: Any, parameters: Any, written: Mapping[str, Any], problems: list[Problem]) -> Any:
    """A model with a budget; as it is without one, INVALID where it cannot have one.

    Args:
        model: its Config, or INVALID.
        parameters: the budget; None where there is none.
        written: the model's settings.
        problems: those of the model, to which those of the budget are added.
    """
    if parameters is None or model is INVALID:
        return model
    fields = {field.name for field in dataclasses.fields(model)}
    if "width" not in fields:
        problems.append(Problem(PARAMETERS, f"decides a width, and the model {model.name} has none. Leave it out"))
    return INVALID if problems else Budgeted(model, parameters, tuple(_TIED & fields - written.keys()))


def _narrowest(wanted: Budgeted, task: Any) -> int | None:
    """The smallest width that the model can have; a user's code may refuse some (heads that share it out).

    Raises:
        ModuleError: it refuses each of the first ``_REFUSALS``.
    """
    refusals: list[ModuleError] = []
    for width in filter(wanted.suits, range(1, NARROWEST_BELOW)):
        try:
            wanted.size(width, task)
            return width
        except ModuleError as error:
            refusals.append(error)
        if len(refusals) == _REFUSALS:
            raise refusals[0]
    return None


@functools.lru_cache(maxsize=4096)
def widest(wanted: Budgeted, task: Any) -> Any:
    """The Config of the widest model within its budget on a task, or why there is none, in words."""
    name = wanted.model.name
    narrowest = _narrowest(wanted, task)
    if narrowest is None:
        return (
            f"{PARAMETERS}: no width below {NARROWEST_BELOW} suits the model {name} as it is set here. Give model.width"
        )

    def size(times: int) -> int:
        return wanted.size(times * narrowest, task)

    if (least := size(1)) > wanted.parameters:
        return (
            f"{PARAMETERS} is {wanted.parameters:,}, and the model {name} has {least:,} at its smallest width, "
            f"{narrowest}: give it more"
        )
    below, above = 1, 2
    while size(above) <= wanted.parameters and above * narrowest < _WIDEST:
        below, above = above, 2 * above
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if size(middle) <= wanted.parameters else (below, middle)
    return wanted.of_width(below * narrowest)
