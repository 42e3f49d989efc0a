"""Whether a model can learn by the rule that a study names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memsweep import registry
from memsweep.errors import one_of


def rule_problems(model: Any, training: Any) -> Iterator[str]:
    """Why a model cannot be trained by ``training.rule``.

    Args:
        model, training: their Configs.
    """
    reason = refusal(training.rule, model)
    if reason is not None:
        yield f"training.rule is {training.rule}, but {reason}. Rules for this model: {one_of(fitting(model))}"


def fitting(model: Any) -> list[str]:
    """The registered rules that fit a model, given by its Config."""
    return [name for name in registry.names(registry.RULE) if refusal(name, model) is None]


def refusal(rule: str, model: Any) -> str | None:
    """Why a registered rule does not fit a model, given by its Config; None where it does."""
    reason: str | None = registry.get(registry.RULE, rule).refusal(registry.get(registry.MODEL, model.name), model)
    return reason
