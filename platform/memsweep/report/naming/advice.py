"""Advice in the words of the task: what the rule calls a horizon is a delay of some tasks, and no setting of others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.config.core.reflect import keys
from memsweep.data.sizes import at_horizon, horizon_field
from memsweep.errors import ConfigError

_HORIZONS = re.compile(r"task\.horizon=([\d,]+)")
_WIDTHS, _SEEDS = re.compile(r"\bmodel\.width="), re.compile(r"\btraining\.seeds=")
OF_ONE_WIDTH = "a file of weights (training.weights) has one width, and so no slope in the width"
_ALIKE = "without a training step all seeds have the weights of the file (training.weights)"


def in_words_of(task: Mapping[str, Any], advice: Sequence[str]) -> tuple[str, ...]:
    """Words of ``memsweep extend`` with the field that the task has for its horizon.

    Args:
        task: canonical config of a trial's task.
        advice: texts; one that asks for a horizon that the task cannot have is left out.
    """
    if not any(map(_HORIZONS.search, advice)):
        return tuple(advice)
    try:
        part = registry.get(registry.TASK, task["name"])
        if "horizon" in keys(part.Config):
            return tuple(advice)
        config = config_from(part.Config, {key: value for key, value in task.items() if key != "name"}, "the task")
    except KeyError:
        return tuple(advice)  # of a workspace that is not here: as the rule says it
    except ConfigError:
        return tuple(text for text in advice if not _HORIZONS.search(text))
    found = [_said(text, config) for text in advice]
    return tuple(text for text in found if text)


def without_horizons(advice: Sequence[str]) -> tuple[str, ...]:
    """The texts that ask for no other horizon."""
    return tuple(text for text in advice if not _HORIZONS.search(text))


def of_weights(training: Mapping[str, Any], advice: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts that can be followed where a file may give the weights, and why the others cannot.

    Args:
        training: canonical config of a trial's training.
        advice: texts; given weights have no other widths, and untrained ones no other seeds.
    """
    fixed = {_WIDTHS: OF_ONE_WIDTH} if training.get("weights") else {}
    if fixed and not training.get("steps"):
        fixed[_SEEDS] = _ALIKE
    why = tuple(sentence for pattern, sentence in fixed.items() if any(map(pattern.search, advice)))
    return tuple(text for text in advice if not any(pattern.search(text) for pattern in fixed)), why


def _said(text: str, config: Any) -> str:
    """One text; empty where the task has no such horizon."""
    field, asked = str(horizon_field(config)), _HORIZONS.search(text)
    if asked is None:
        return text
    try:
        values = [getattr(at_horizon(config, int(horizon)), field) for horizon in asked[1].split(",")]
    except ValueError:
        return ""
    return f"{text[: asked.start()]}task.{field}={','.join(map(str, values))}{text[asked.end() :]}"
