"""Problems that the own code of models and tasks shows when it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from memsweep import registry
from memsweep.config.core.problems import sentence
from memsweep.config.schema.trial import TrialConfig

_NUMBER = re.compile(r"(?<![\w.])\d(?:[\d.]|e[+-]?\d)*")
"""A number, and not the digits of a name such as ``nets:GRU2`` or ``layers.0.weight``."""


def code_problems(trials: Sequence[TrialConfig]) -> list[str]:
    """The problems that the own code of models and tasks shows when it runs, once for all that it may look at.

    A fault that several trials have, with different numbers (shapes, differences), is told once, of the first trial.
    """
    different: dict[Any, TrialConfig] = {}
    for trial in trials:
        training = trial.training
        of_training = (training.steps > 0, training.rule, training.weights)
        different.setdefault((trial.task, trial.model, of_training, trial.perturbation), trial)
    texts, known = list[str](), set[str]()
    for trial in different.values():
        parts = ((registry.TASK, trial.task.name), (registry.MODEL, trial.model.name))
        own = [
            sentence(kind, text) for kind, name in parts for text in registry.get(kind, name).problems_of_code(trial)
        ]
        texts += [text for text in dict.fromkeys(own) if _NUMBER.sub("#", text) not in known]
        known |= {_NUMBER.sub("#", text) for text in own}
    return texts
