"""Whether a model can learn by the rule that a study names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from memsweep import registry
from memsweep.errors import one_of


def rule_problems(model: Any, training: Any) -> Iterator[str]:
    """Why a model cannot be trained by ``training.rule`` with these settings.

    Args:
        model, training: their Configs.
    """
    reason = refusal(training.rule, model)
    if reason is not None:
        yield f"training.rule is {training.rule}, but {reason}. Rules for this model: {one_of(fitting(model))}"
    shrinking = [] if registry.get(registry.RULE, training.rule).trains_layers else _shrinking(training)
    if shrinking:
        yield (
            f"training.rule is {training.rule}, by which layers keep their initial weights, but "
            f"{' and '.join(shrinking)} would move them: set 0"
        )


def _shrinking(training: Any) -> list[str]:
    """Settings that move weights which no gradient of the loss reaches."""
    named = {name: getattr(training, name) for name in ("amplitude_penalty", "margin_penalty", "weight_decay")}
    groups = [field.name for field in dataclasses.fields(training.groups)]
    named |= {f"groups.{name}.weight_decay": getattr(training.groups, name).weight_decay for name in groups}
    return [f"training.{name} {value:g}" for name, value in named.items() if value]


def fitting(model: Any) -> list[str]:
    """The registered rules that fit a model, given by its Config."""
    return [name for name in registry.names(registry.RULE) if refusal(name, model) is None]


def refusal(rule: str, model: Any) -> str | None:
    """Why a registered rule does not fit a model, given by its Config; None where it does."""
    reason: str | None = registry.get(registry.RULE, rule).refusal(registry.get(registry.MODEL, model.name), model)
    return reason
