"""Sharpness in training: ``curvature`` finds the largest curvature of the loss, ``observer`` measures it at some steps,
``section`` reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memsweep.config.core.fields import setting
from memsweep.registry import register_measure
from memsweep.stability.optional import TrainingMeasure

if TYPE_CHECKING:
    from memsweep.config.schema.training import TrainingConfig
    from memsweep.learning.ensemble.replicas import Ensemble
    from memsweep.learning.training.observer import Observer


@register_measure("sharpness")
class Sharpness(TrainingMeasure):
    """The largest curvature of the loss in training, and the learning rate that it allows."""

    table = "sharpness"
    columns: ClassVar[Mapping[str, str]] = {
        "step": "int64",
        "learning_rate": "float64",
        "sharpness": "float64",
        "ceiling": "float64",
        "margin": "float64",
        "output_change": "float64",
        "time_scale_low": "float64",
        "time_scale": "float64",
        "time_scale_high": "float64",
    }
    grows: ClassVar[Mapping[str, str]] = {
        "output_change": "change of the outputs since the start (root mean square)",
        "time_scale_low": "shortest time scale of a mode, steps",
        "time_scale": "median time scale of the modes, steps",
        "time_scale_high": "longest time scale of a mode, steps",
        "sharpness": "largest curvature of the loss",
        "ceiling": "learning rate that the curvature allows",
    }
    section = "memsweep.measures.sharpness.section:section"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """At which steps sharpness is measured."""

        sharpness_every: int | None = setting(
            None,
            "steps between measurements of the loss's largest curvature, on one batch, and of the largest learning "
            "rate that the optimizer would bear there; a multiple of validate_every; costs 64 gradients each (null: "
            "none)",
            at_least=1,
            added=True,
        )

        def problems_beside(self, training: TrainingConfig) -> Iterable[str]:
            if self.sharpness_every and self.sharpness_every % training.validate_every:
                yield (
                    f"sharpness_every ({self.sharpness_every}) must be a multiple of validate_every "
                    f"({training.validate_every})"
                )

    @classmethod
    def gradients(cls, asked: Config, training: TrainingConfig) -> float:
        from memsweep.measures.sharpness.curvature import STEPS

        assert asked.sharpness_every is not None, "please report this: sharpness was not asked for"
        return 4.0 * STEPS * (training.end // asked.sharpness_every + 1)

    @classmethod
    def observer(cls, asked: Config, ensemble: Ensemble, training: TrainingConfig) -> Observer:
        from memsweep.measures.sharpness.observer import SharpnessObserver

        assert asked.sharpness_every is not None, "please report this: sharpness was not asked for"
        return SharpnessObserver(cls.table, ensemble.rows, asked.sharpness_every)
