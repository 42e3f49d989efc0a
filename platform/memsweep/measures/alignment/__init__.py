"""Alignment of a learning rule's gradients with those of backpropagation through time: ``observer`` compares them at
some steps of the training, ``rows`` sorts the comparisons by condition and layer, ``section`` reports them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from memsweep import registry
from memsweep.config.core.fields import setting
from memsweep.measures.alignment.names import ALL, MEASURES
from memsweep.registry import register_measure
from memsweep.stability.optional import TrainingMeasure

if TYPE_CHECKING:
    from memsweep.config.schema.training import TrainingConfig
    from memsweep.learning.ensemble.replicas import Ensemble
    from memsweep.learning.training.observer import Observer


@register_measure("alignment")
class Alignment(TrainingMeasure):
    """How well the gradients of a learning rule agree with those of backpropagation through time."""

    table = "alignment"
    columns: ClassVar[Mapping[str, str]] = {
        "step": "int64",
        "layer": "string",
        "cosine": "float64",
        "norm_ratio": "float64",
    }
    has_sizes = False
    is_tracked = True
    section = "memsweep.measures.alignment.section:section"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """At which steps gradients are compared."""

        alignment_every: int = setting(
            0,
            "steps between comparisons of the rule's gradient with that of bptt, layer by layer (0: none; bptt itself "
            "has none to make); costs a gradient each",
            at_least=0,
        )

    @classmethod
    def is_asked(cls, asked: Config) -> bool:
        return asked.alignment_every > 0

    @classmethod
    def gradients(cls, asked: Config, training: TrainingConfig) -> float:
        return training.end / asked.alignment_every if _compares(training) else 0.0

    @classmethod
    def observer(cls, asked: Config, ensemble: Ensemble, training: TrainingConfig) -> Observer | None:
        from memsweep.measures.alignment.observer import AlignmentObserver

        if not _compares(training):
            return None
        return AlignmentObserver.start(cls.table, ensemble, asked.alignment_every)

    @classmethod
    def summary(cls, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Medians over replicas of means over the compared steps, for all weights and for each layer."""
        import pandas as pd

        means = pd.DataFrame(rows).groupby(["layer", "seed"], sort=False)[[*MEASURES]].mean()
        medians = means.groupby("layer", sort=False).median().to_dict()
        return {
            str(name) + ("" if layer == ALL else f"_layer_{layer}"): float(value)
            for name, of_layers in medians.items()
            for layer, value in of_layers.items()
        }


def _compares(training: TrainingConfig) -> bool:
    """Whether the rule is another one than backpropagation itself."""
    return bool(registry.get(registry.RULE, training.rule).forward)
