"""Settings of the optimizer for groups of weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from memsweep.config.core.fields import setting


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """Settings of the optimizer for one group of weights; a setting that is left out is the one of training."""

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

    def settings(self) -> list[tuple[str, str]]:
        """The groups that have settings of their own, each with them in words."""
        given = {
            field.name: {name: value for name, value in vars(getattr(self, field.name)).items() if value is not None}
            for field in dataclasses.fields(self)
        }
        return [
            (group, " and ".join(f"{name} {value:g}" for name, value in settings.items()))
            for group, settings in given.items()
            if settings
        ]
