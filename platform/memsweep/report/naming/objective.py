"""The objective of a trial in words: the task's loss, and everything that is added to it or done to its gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from memsweep import registry

_MOST = 3


def objectives(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The different objectives of trials, the commonest first; at most three, and how many more there are.

    Args:
        configs: the plain data of the trials.
    """
    counts = Counter(map(objective, configs))
    texts = [text if len(counts) == 1 else f"{text} ({count} trials)" for text, count in counts.most_common(_MOST)]
    return [*texts, *([f"and {len(counts) - _MOST} more"] if len(counts) > _MOST else [])]


def objective(config: Mapping[str, Any]) -> str:
    """``task loss + 0.01 (|encoder|^2 + |readout|^2), adamw, cosine, clip 0.5``: of the plain data of a trial."""
    training, model = config.get("training", {}), config.get("model", {})
    given = Path(training["weights"]).name if training.get("weights") else ""
    if not training.get("steps", 1):
        return f"nothing (0 steps{f', the weights of {given}' if given else ''})"
    terms = ["task loss"]
    if amount := training.get("amplitude_penalty"):
        terms.append(f"{amount:g} (|encoder|^2 + |readout|^2)")
    if amount := training.get("margin_penalty"):
        terms.append(f"{amount:g} relu(1 - stability margin)")
    if _has_own_penalty(str(model.get("name"))):
        terms.append(f"the penalty of {model['name']}")
    words = [" + ".join(terms), str(training.get("optimizer", ""))]
    if amount := training.get("weight_decay"):
        words.append(f"weight decay {amount:g}")
    words.append(f"{training.get('schedule') or ''} rate".strip())
    words.append(f"clip {training['clip']:g}" if training.get("clip") else "no clip")
    words.append(f"from the weights of {given}" if given else "")
    return ", ".join(filter(None, words))


def _has_own_penalty(model: str) -> bool:
    if model not in registry.names(registry.MODEL):
        return False
    penalty = getattr(registry.get(registry.MODEL, model), "penalty", None)
    return getattr(penalty, "__qualname__", "Model.penalty") != "Model.penalty"
