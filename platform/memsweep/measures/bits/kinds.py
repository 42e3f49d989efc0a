"""What can be rounded, to which numbers and how: the values of ``perturbation.roundings``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memsweep.models.roles import Part

FIXED, FLOAT, FORMAT = "fixed", "float", "format"


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
        number: ``fixed`` (with scales), ``float`` (any exponent), or ``format``: each of FORMATS, with its range.
        parts: of the weights that are rounded; none: states are.
        how: ``nearest``; ``feedback``, of states, which adds a step's rounding error to the next step; or
            ``stochastic``, up or down with the probabilities that make the mean right; or ``certificate``: in place of
            an error an upper bound of it, over all that moves no weight by more than half a cell.
        by_channel: a scale for each row of a weight tensor or each unit of a state, in place of one for all of it.
    """

    number: str
    parts: tuple[Part, ...] = ()
    how: str = NEAREST
    by_channel: bool = False

    def bits_of(self, asked: Sequence[int]) -> Sequence[int]:
        """The numbers of bits of its curve, where these are asked for; significant bits stand for formats."""
        return [each.significant for each in FORMATS.values()] if self.number == FORMAT else asked


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


def radii_of_bits(bits: Sequence[int]) -> list[float]:
    """Radius 0, then 2^-bits, increasing: by how much a rounding moves a number at most, relative to its size.

    A stochastic rounding moves a number by up to twice as much.
    """
    return [0.0, *(2.0**-count for count in sorted(bits, reverse=True))]
