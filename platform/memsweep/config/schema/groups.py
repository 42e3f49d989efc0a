"""Settings of the optimizer for groups of weights, and whether a model has weights in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from memsweep import registry
from memsweep.config.core.fields import setting
from memsweep.errors import one_of


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """Settings of the optimizer for one group of weights; what is left out is as for all others."""

    learning_rate: float | None = setting(None, "step size at the start", above=0.0, at_most=1e4)
    factor: float | None = setting(
        None,
        "step size as a multiple of training.learning_rate, which it follows wherever a search or a schedule moves it",
        above=0.0,
        at_most=1e4,
    )
    weight_decay: float | None = setting(None, "weight decay", at_least=0.0)

    def problems(self) -> Iterable[str]:
        if self.learning_rate is not None and self.factor is not None:
            yield (
                f"learning_rate is {self.learning_rate:g} and factor is {self.factor:g}, which is a learning rate, "
                "too: leave one of them out"
            )


@dataclass(frozen=True, kw_only=True)
class GroupsConfig:
    """Groups of weights that may have settings of their own; models say which weights are in them."""

    orthogonal: GroupConfig = setting(
        doc="what an orthogonal matrix is made of (orthogonal_rnn, exp_rnn, nn_rnn)", factory=GroupConfig
    )
    triangle: GroupConfig = setting(doc="the strictly upper part of a non-normal matrix (nn_rnn)", factory=GroupConfig)
    recurrent: GroupConfig = setting(
        doc="what decides how a unit of a deep model forgets, and the scale of what it takes in (residual_stack)",
        factory=GroupConfig,
    )
    input: GroupConfig = setting(
        doc="what brings the input of a layer to the states of its unit (residual_stack)", factory=GroupConfig
    )


def group_problems(groups: GroupsConfig, model: Any) -> Iterator[str]:
    """Settings of groups in which a model, given by its Config, has no weights: they would do nothing."""
    for field in dataclasses.fields(groups):
        wanted = dataclasses.asdict(getattr(groups, field.name))
        given = [f"{name} {value:g}" for name, value in wanted.items() if value is not None]
        if given and field.name not in _groups_of(registry.get(registry.MODEL, model.name), model):
            able = [name for name in registry.names(registry.MODEL) if field.name in _groups_by_default(name)]
            yield (
                f"training.groups.{field.name} sets {' and '.join(given)}, but the model {model.name} has no weights "
                f"in that group. Models that have some: {one_of(able)}. Leave it out, or set training.learning_rate "
                "and training.weight_decay, which are for all weights"
            )


def _groups_of(model_class: Any, config: Any) -> set[str]:
    return {str(role.group) for role in model_class.roles(config).values()}


def _groups_by_default(model: str) -> set[str]:
    found = registry.get(registry.MODEL, model)
    try:
        return _groups_of(found, found.Config())
    except TypeError:  # a Config that has a field without a default
        return set()
