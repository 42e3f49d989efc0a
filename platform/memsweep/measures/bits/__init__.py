"""Bits: the perturbation that deployment makes for certain, a rounding of weights or of states.

A rounding to b bits moves a number by at most a share of a known size: 2^-b of itself in floating point, and half a
step, 1 / (2^b - 2) of the largest, in fixed point. So an error against bits is an error against this radius: it is
stored, judged and drawn as the perturbation error is. It is measured for roundings to nearest: the error of one model,
no bound of others.

``kinds`` names the roundings, ``numbers`` rounds, ``rounded`` measures weights and ``states`` states,
``certificate`` bounds an error, ``curves`` makes the rows, ``needed`` counts bits, ``section`` reports them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from memsweep import registry
from memsweep.config.core.fields import setting
from memsweep.measures.bits.kinds import COUNTED, DRAWS, FIXED, LEAST, OF_STATES, ROUNDINGS, STOCHASTIC
from memsweep.registry import register_measure
from memsweep.stability.optional import CURVES, Effort, Measure, Subject

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.models.base import Model, Weights
    from memsweep.stability.optional import Measured

_USUAL = tuple(range(1, 17))


@register_measure("bits")
class Bits(Measure):
    """The error of models whose weights or states are rounded to few bits, or to the usual number formats."""

    table = CURVES
    columns: ClassVar[Mapping[str, str]] = {}
    curves = frozenset(ROUNDINGS)
    answering = frozenset(COUNTED)
    is_flat = True
    perturbs = True
    section = "memsweep.measures.bits.section:sections"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Which roundings are measured, and to how many bits."""

        roundings: tuple[str, ...] = setting(
            (),
            "what is rounded to few bits, each by itself: the recurrent weights, all weights, or the states of a model "
            "that goes step by step; to symmetric integers with a scale for each tensor (fixed) or for each row of a "
            "tensor and unit of a state (channel), up or down by chance (stochastic, integers), to floating point "
            "(float), or to float16, bfloat16, float8_e4m3 and float8_e5m2, with their ranges (formats); "
            "certified: an upper bound of the error over all roundings to integers (diagonal_rnn, in closed form); "
            "feedback_states adds a step's rounding error to the next step",
            choices=tuple(ROUNDINGS),
        )
        bits: tuple[int, ...] = setting(
            _USUAL,
            "bits of a rounded number: of an integer with its sign (2^bits - 1 values, so that int8 is -127 to 127; "
            "from 2 bits on), significant bits in floating point (bfloat16 has 8, float16 11)",
            at_least=1,
            at_most=24,
        )

        def problems(self) -> Iterable[str]:
            for name, values in (("roundings", self.roundings), ("bits", self.bits)):
                if len(set(values)) != len(values):
                    yield f"{name} has a value twice: {', '.join(map(str, values))}"
            if any(not name.startswith("formats_") for name in self.roundings) and len(self.bits) < 2:
                yield (f"bits must have two values or more for a curve, got {', '.join(map(str, self.bits)) or 'none'}")
            integers = [name for name in self.roundings if ROUNDINGS[name].number == FIXED]
            if integers and self.bits != _USUAL and min(self.bits, default=LEAST) < LEAST:
                yield (
                    f"bits has {min(self.bits)}, but the symmetric integers of {', '.join(integers)} have {LEAST} bits "
                    f"(-1, 0, 1) or more, 2^bits - 1 values: use {LEAST} or more"
                )

    def __init__(self, asked: Config, subject: Subject) -> None:
        super().__init__(asked, subject)
        from memsweep.measures.bits.curves import rounded_errors

        self.errors = rounded_errors(asked, subject)

    @classmethod
    def in_short(cls, *, steps: bool, ids: bool) -> tuple[str, ...]:
        roundings = "fixed_weights, fixed_states" if steps else "fixed_weights"
        return f"perturbation.roundings=[{roundings}]", "perturbation.bits=[2, 3, 4, 5, 6, 8]"

    @classmethod
    def is_asked(cls, asked: Config) -> bool:
        return bool(asked.roundings)

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        asked = next(each for each in trial.perturbation.asked_measures if type(each) is cls.Config)
        model, names = registry.get(registry.MODEL, trial.model.name), asked.roundings
        certified = [name for name in names if name.startswith("certified")]
        if certified:
            for why in model.problems_of_certificates(trial):
                yield f"perturbation.roundings has {', '.join(certified)}, but {why}: leave them out"
        of_states = [name for name in names if name in OF_STATES]
        if not of_states:
            return
        named = f"perturbation.roundings has {', '.join(of_states)}"
        for why in model.problems_of_states(trial):
            yield f"{named}, but {why}: round its weights instead"
        if registry.get(registry.TASK, trial.task.name).carries_states:
            yield f"{named}, but the task {trial.task.name} carries states from batch to batch: round weights instead"

    @classmethod
    def problems_without_steps(cls, asked: Config, module: str) -> Iterator[str]:
        of_states = [name for name in asked.roundings if name in OF_STATES]
        if of_states:
            yield (
                f"perturbation.roundings has {', '.join(of_states)}, but {module} has no method step(x, state) "
                "that gives (y, state): write one, or round its weights alone"
            )

    @classmethod
    def cost(cls, asked: Config, effort: Effort) -> float:
        """An evaluation for each number of bits, and without rounding; of weights by chance, for each draw."""
        kinds = [ROUNDINGS[name] for name in asked.roundings]
        draws = ((kind, DRAWS if kind.parts and kind.how == STOCHASTIC else 1) for kind in kinds)
        return float(sum(count * len(kind.radii_of(asked.bits)) for kind, count in draws))

    def extended(self, measured: Measured) -> Measured:
        """With the errors of all replicas: those of one that diverged are infinite, as they are in every ball."""
        from memsweep.measures.bits.curves import with_curves

        return with_curves(measured, self.asked, self.errors, self.subject.config)

    def rows(self, model: Model, weights: Weights, row: int) -> Iterable[Mapping[str, Any]]:
        from memsweep.measures.bits.curves import curve_rows

        return curve_rows(self.asked, self.errors[row], self.subject.config)
