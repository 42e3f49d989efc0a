"""What can be rounded, to which numbers and how: the values of ``perturbation.roundings``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memsweep.models.roles import Part

FIXED, FLOAT, FORMAT = "fixed", "float", "format"
LEAST = 2
"""Bits of the smallest integers with a sign: -1, 0 and 1."""


@dataclass(frozen=True)
class Format:
    """A floating-point format of IEEE 754's kind, with subnormal numbers.

    Attributes:
        significant: bits, the leading one included.
        exponent: of the smallest normal number, 2^exponent.
        largest: finite number.
        scaled: whether each tensor of weights, or state, has a scale that brings its largest number there, as is usual
            where a format has 8 bits.
    """

    significant: int
    exponent: int
    largest: float
    scaled: bool


FORMATS = {
    "float16": Format(11, -14, 65_504.0, scaled=False),
    "bfloat16": Format(8, -126, 2.0**128 - 2.0**120, scaled=False),
    "float8_e4m3": Format(4, -6, 448.0, scaled=True),
    "float8_e5m2": Format(3, -14, 57_344.0, scaled=True),
}
"""The usual formats, the most significant bits first; no two have as many."""
NEAREST, FEEDBACK, STOCHASTIC, CERTIFICATE = "nearest", "feedback", "stochastic", "certificate"
"""How numbers are rounded, in the column ``method`` of the curves."""
DRAWS = 16
"""Draws over which the error of stochastically rounded weights is a mean. States have a draw for each sequence."""


@dataclass(frozen=True)
class Rounding:
    """What is rounded, and how.

    Attributes:
        number: ``fixed`` (symmetric integers with scales), ``float`` (any exponent), or ``format``: each of FORMATS,
            with its range.
        parts: of the weights that are rounded; none: states are.
        how: ``nearest``; ``feedback``, of states, which adds a step's rounding error to the next step; or
            ``stochastic``, up or down with the probabilities that make the mean right; or ``certificate``: in place of
            an error an upper bound of it, over all that moves no weight by more than half a step.
        by_channel: a scale for each row of a weight tensor or each unit of a state, in place of one for all of it.
    """

    number: str
    parts: tuple[Part, ...] = ()
    how: str = NEAREST
    by_channel: bool = False

    def bits_of(self, asked: Sequence[int]) -> Sequence[int]:
        """The numbers of bits of its curve, where these are asked for; significant bits stand for formats."""
        if self.number == FORMAT:
            return [each.significant for each in FORMATS.values()]
        return [bits for bits in asked if bits >= LEAST] if self.number == FIXED else asked

    def radius_of(self, bits: float) -> float:
        """By how much it moves a number to nearest at most, relative to its size, or in fixed point to the largest.

        Half a step of the 2^bits - 1 values in fixed point; by chance up to twice as much.
        """
        return 1.0 / (2.0**bits - 2.0) if self.number == FIXED else 2.0**-bits

    def bits_at(self, radius: float) -> float:
        """The inverse of ``radius_of``: bits that store numbers with so large a half step, infinite at radius 0."""
        if radius == 0.0:
            return math.inf
        return math.log2(1.0 / radius + 2.0) if self.number == FIXED else -math.log2(radius)

    def radii_of(self, asked: Sequence[int]) -> list[float]:
        """Radius 0, then those of its curve, increasing."""
        return [0.0, *(self.radius_of(bits) for bits in sorted(self.bits_of(asked), reverse=True))]


_WEIGHTS = tuple(part for part in Part if part is not Part.STATISTIC)
ROUNDINGS = {
    "fixed_recurrent": Rounding(FIXED, (Part.RECURRENT,)),
    "certified_recurrent": Rounding(FIXED, (Part.RECURRENT,), CERTIFICATE),
    "channel_recurrent": Rounding(FIXED, (Part.RECURRENT,), by_channel=True),
    "stochastic_recurrent": Rounding(FIXED, (Part.RECURRENT,), STOCHASTIC),
    "float_recurrent": Rounding(FLOAT, (Part.RECURRENT,)),
    "formats_recurrent": Rounding(FORMAT, (Part.RECURRENT,)),
    "fixed_weights": Rounding(FIXED, _WEIGHTS),
    "certified_weights": Rounding(FIXED, _WEIGHTS, CERTIFICATE),
    "channel_weights": Rounding(FIXED, _WEIGHTS, by_channel=True),
    "stochastic_weights": Rounding(FIXED, _WEIGHTS, STOCHASTIC),
    "float_weights": Rounding(FLOAT, _WEIGHTS),
    "formats_weights": Rounding(FORMAT, _WEIGHTS),
    "fixed_states": Rounding(FIXED),
    "channel_states": Rounding(FIXED, by_channel=True),
    "stochastic_states": Rounding(FIXED, how=STOCHASTIC),
    "feedback_states": Rounding(FIXED, how=FEEDBACK),
    "float_states": Rounding(FLOAT),
    "formats_states": Rounding(FORMAT),
}


OF_STATES = tuple(name for name, rounding in ROUNDINGS.items() if not rounding.parts)
IN_FORMATS = tuple(name for name, rounding in ROUNDINGS.items() if rounding.number == FORMAT)
COUNTED = tuple(name for name in ROUNDINGS if name not in IN_FORMATS)
"""Roundings to any number of bits, of which a memory needs some."""
