"""The declared decay of a module beside the measured one, while a constant input holds its gates.

Noise for a few steps, then one constant input: what is left of a change of the noise is measured at every later step,
in one pass. A module whose gates are open for that input must keep what the product of its declared factors says. The
comparison is made in the states, where a step form gives them. In the outputs alone a readout that the held input
drives to where it is flat hides what the states keep, so that a difference is a note there and no fault.

Letters: C constant inputs, K steps of holding, M channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from memsweep.checks.apart import Effect
from memsweep.checks.declared import decay_of, has_decay, kept_in_states, linear, reads_input
from memsweep.checks.finding import Curve, Finding, curve, finding, not_measured, show
from memsweep.checks.memory.scale import finite_rows
from memsweep.checks.part import Check
from memsweep.checks.subject import HALF, PREFIX, SINGLE, WIDE, Subject

RATES = 2.0
"""In states, the late rates of decay, declared and measured, may differ by this factor."""
_SHORTER, _LONGER = 0.05, 10.0
"""Between two late steps, the measured share may fall to so many times what the slowest declared factor says.

Below 1, because other channels are still falling away; above 1, because layers on top of each other decay as a
polynomial times the slowest factor."""
_SEEN = 1e-4
"""Share of its beginning down to which the declared memory of the slowest channel is compared."""
_FEWEST = 8  # steps of a comparison
_TOLD = 0.2
"""Logarithm of a difference between two shares from which it is none of rounding or of an oscillation."""
_FADES, _LONG = 1e-3, 32
"""A memory fades where it loses that share under some held input, within these steps at least."""
_VARIES = 0.05
"""Declared factors that differ by more from one input to another are a decay that depends on the input."""
_ALIKE = {WIDE: 1e-4, SINGLE: 1e-2, HALF: 0.3}
"""Shares that differ by less from one held input to another are the same, by the precision of the module."""
_FLOOR = {WIDE: 1e-9, SINGLE: 1e-3, HALF: 0.3}
"""Share of its beginning below which a measured response is rounding, by the precision of the module."""


def decay(subject: Subject, seconds: float) -> Finding:
    """How long an input is kept while a constant input holds the gates, and whether it is what the module declares."""
    constants = subject.candidates()
    declares = has_decay(subject.at(subject.reference))
    kept, size, states = Effect(torch.empty(0, 0), torch.empty(0)), 0.0, None
    for length in subject.affordable(sorted({max(1, length - PREFIX) for length in subject.lengths()}), seconds):
        (kept, size), states = subject.retention(constants, length), kept_in_states(subject, constants, length)
    rows, shares, floors = _shares(kept)
    measured = kept.rows.numpy() if states is None else np.hstack([kept.rows.numpy(), states.effect.rows.numpy()])
    _, left_out = finite_rows(measured, "held inputs, whose outputs or states")
    if not len(rows):
        why = f"no output changes beyond rounding once its input is past, {_by(subject)}."
        return not_measured("decay", " ".join([why, *left_out]))
    numbers, curves, well = _in_numbers(shares, len(constants))
    if not subject.tokens:
        numbers["change"] = size
    if size > subject.changes[0]:
        well += f" The inputs are changed by {show(size)}, as less moves too little."
    in_states = None if states is None else _shares(states.effect)
    kept_shares = shares if in_states is None else in_states[1]
    notes = [*_never_forgets(kept_shares, len(constants), numbers), *left_out]
    if not declares:
        well = f"{well} It declares no decay to compare."
        return finding("decay", well, numbers, notes=[well, *notes] if notes else [], curves=curves)
    if states is not None and in_states is not None:
        rows, shares, floors = in_states
        if not len(rows) and states.any.any():
            said = f"{well} Its declared decay is not compared: what is left in its states may be rounding."
            return finding("decay", well, numbers, notes=[said, *notes], curves=curves)
        if not len(rows):
            said = f"{well} Its states keep nothing of an earlier input, {_by(subject)}."
            return finding("decay", well, numbers, faults=[said], curves=curves)
    declared = decay_of(subject, subject.held(constants[torch.from_numpy(rows)], 1))
    if declared is None:
        notes = [well, *notes] if notes else []
        return finding("decay", well, numbers | {"declared": False}, notes=notes, curves=curves)
    numbers["declared"], factors = True, declared[:, -1].numpy()
    certain = in_states is not None or linear(subject.at(subject.reference)) is not None
    narrow = None if states is None else _envelope(states.most.numpy()[rows])
    words, faults, apart = _compared(subject, factors, shares, floors, numbers, certain, narrow)
    curves.append(curve("hold", "longest, declared", factors.max() ** np.arange(shares.shape[1])))
    well, notes = f"{well} {words}", [*notes, *apart]
    return finding("decay", well, numbers, faults=faults, notes=[well, *notes] if notes else [], curves=curves)


def _in_numbers(shares: np.ndarray, tried: int) -> tuple[dict[str, Any], list[Curve], str]:
    """The shares that are left by held input, ``[C, K]``, of so many tried, in numbers, as curves and in words."""
    steps = shares.shape[1]
    scales = (shares >= math.exp(-1)).sum(1)
    longest, shortest = int(scales.argmax()), int(scales.argmin())
    numbers: dict[str, Any] = {
        "held_steps": steps,
        "longest": int(scales[longest]),
        "shortest": int(scales[shortest]),
        "typical": float(np.median(scales)),
        "left_at_the_end": float(shares[:, -1].max()),
        "left_at_least": float(shares[:, -1].min()),
        "inputs_tried": len(shares),
        "declared": False,
    }
    curves = [
        curve("hold", "longest, measured", shares[longest]),
        curve("hold", "shortest, measured", shares[shortest]),
    ]
    beyond = " or more" if scales[longest] >= steps else ""
    typical = f"typical {show(numbers['typical'])}, measured over {steps}"
    many = f"{scales[shortest]} to {scales[longest]}{beyond} steps, by input ({typical})."
    held = "whichever is held" if len(shares) == tried else f"under {len(shares)} of {tried} held inputs"
    same = f"{scales[longest]}{beyond} steps, {held} (measured over {steps})."
    well = "While one input is held, the effect of an earlier one falls to 1/e in "
    return numbers, curves, well + (same if scales[shortest] == scales[longest] else many)


def _never_forgets(shares: np.ndarray, tried: int, numbers: dict[str, Any]) -> list[str]:
    """A note where no held input makes anything fade; ``shares`` are of those of all that leave something at first."""
    steps = shares.shape[1] if len(shares) else 0
    if steps < _LONG or shares[:, -1].min() < 1 - _FADES:
        return []
    numbers["left_at_least"] = float(shares[:, -1].min())
    if len(shares) < tried:
        return [
            f"Under {len(shares)} of {tried} held inputs it never forgets: after {steps} steps, all of an earlier one "
            "is left."
        ]
    return [f"It never forgets: whichever input is held for {steps} steps, all of an earlier one is left."]


def _shares(effect: Effect) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The constant inputs for which something finite is kept, and the share of it that is left, by step: ``[C, K]``.

    And the share below which it may be rounding, ``[C]``.
    """
    # an oscillation is no recovery: the envelope is what is still to come
    kept = effect.rows.numpy()
    envelope = _envelope(np.nan_to_num(kept))
    rows = np.flatnonzero(np.isfinite(kept).all(1) & (envelope[:, 0] > 0))
    return rows, envelope[rows] / envelope[rows, :1], effect.floor.numpy()[rows] / envelope[rows, 0]


def _by(subject: Subject) -> str:
    """The changes of the inputs that were tried, in words."""
    if subject.tokens:
        return "by the next id in the place of each"
    *smaller, largest = map(show, subject.changes)
    return f"by changes of size {', '.join(smaller)} and {largest}"


def _envelope(kept: np.ndarray) -> np.ndarray:
    return np.maximum.accumulate(kept[:, ::-1], 1)[:, ::-1]


def _compared(
    subject: Subject,
    factors: np.ndarray,
    shares: np.ndarray,
    floors: np.ndarray,
    numbers: dict[str, Any],
    certain: bool,
    narrow: np.ndarray | None,
) -> tuple[str, list[str], list[str]]:
    """The declaration in words, its faults and notes; adds to the numbers.

    Args:
        subject: the module.
        factors: declared, ``[C, M]``.
        shares: measured, ``[C, K]``.
        floors: the shares below which they may be rounding, ``[C]``.
        numbers: of the finding.
        certain: no readout stands between the states and what was measured.
        narrow: of the number of the states that keeps most, ``[C, K]``: rates are compared as well.
    """
    slowest = factors.max(1)
    with np.errstate(divide="ignore"):
        rates = -np.log(slowest)
        times = 1 / np.maximum(rates, 0)
    numbers |= {
        "declared_slowest": float(slowest.max()),
        "declared_fastest": float(factors.min()),
        "declared_time_constant_longest": float(times.max()),
        "declared_time_constant_shortest": float(times.min()),
        "compared": "states" if certain else "outputs",
    }
    low, high = show(float(times.min())), show(float(times.max()))
    floors = np.maximum(floors, _FLOOR[subject.inside]).tolist()
    ends = [_end(len(shares[0]), rate, floor) for rate, floor in zip(rates.tolist(), floors, strict=True)]
    words = f"Declared for the slowest channel: {high if low == high else f'{low} to {high}'} steps; "
    words += _how(max(ends) >= _FEWEST, narrow is not None)
    faults, notes = [], []
    if reads_input(subject.at(subject.reference)) and len(shares) > 1:
        varies, same = float(np.ptp(factors, axis=0).max()), float(np.ptp(shares, axis=0).max())
        if varies < 1e-9:
            faults.append(
                f"decay(x) takes an input and gives the same factors for all of them (slowest {slowest.max():.6g}): "
                "the decay ignores its input."
            )
        elif varies > _VARIES and same < _ALIKE[subject.inside]:
            faults.append(
                "The decay ignores its input: whatever input is held, an earlier one fades in the same way (shares "
                f"differ by at most {show(same)}), and the declared factors of a channel differ by up to "
                f"{show(varies)}."
            )
    most = [None] * len(shares) if narrow is None else narrow
    found = (_apart(*each) for each in zip(shares, most, rates.tolist(), ends, floors, strict=True))
    apart = [each for each in found if each is not None]
    if apart:
        worst = max(apart, key=lambda each: abs(each.measured - each.expected))
        numbers["measured_share"], numbers["declared_share"] = math.exp(worst.measured), math.exp(worst.expected)
        if certain:
            faults.append(str(worst))
        else:
            notes.append(f"{worst} Or the held input drives the readout to where it is flat: a step form would tell.")
    return words, faults, notes


@dataclass(frozen=True)
class _Apart:
    """A measured decay between two steps of a held input that is not the declared one.

    Attributes:
        start, end: the steps.
        measured, expected: logarithms of what the effect of an earlier input shrinks to between them.
        factor: the slowest declared one.
    """

    start: int
    end: int
    measured: float
    expected: float
    factor: float

    def __str__(self) -> str:
        word = "forgets sooner" if self.measured < self.expected else "keeps longer"
        return (
            f"It {word} than it declares: between steps {self.start} and {self.end} of a held input, the effect of an "
            f"earlier one shrinks to {show(math.exp(self.measured))} of itself; the slowest declared factor "
            f"({self.factor:.6g}) says {show(math.exp(self.expected))}."
        )


def _how(compared: bool, narrow: bool) -> str:
    """How far a pass confirms the declaration."""
    if not compared:
        return f"not compared, which takes {_FEWEST} steps within which it can be seen."
    if narrow:
        return (
            f"the late rate of the states is the declared one to a factor of {RATES:g}, which is all that is compared."
        )
    return (
        f"what is left late in the outputs is between {_SHORTER:g} and {_LONGER:g} times what that says, which is all "
        "that is compared."
    )


def _end(steps: int, rate: float, floor: float) -> int:
    """The last step at which a declared rate is compared."""
    # Up to three quarters: the envelope of an oscillation needs steps that follow.
    end = 3 * steps // 4
    return min(end, math.floor(-math.log(max(_SEEN, 10 * floor)) / rate)) if rate > 0 else end


def _apart(share: np.ndarray, most: np.ndarray | None, rate: float, end: int, floor: float) -> _Apart | None:
    """Compares one measured share ``[K]`` with the declared rate, where both can be seen."""
    start = end // 2
    if end < _FEWEST:
        return None
    rates_apart = most is not None and _rates_apart(share, most, rate, end, floor)
    if share[start] < floor:  # rounding is all that is left, where much should be
        start, end = 0, start
    measured, expected = math.log(max(share[end], floor) / share[start]), -rate * (end - start)
    sooner, longer = measured < expected + math.log(_SHORTER), measured > expected + math.log(_LONGER)
    if rates_apart or sooner or (longer and share[end] > floor):
        return _Apart(start, end, measured, expected, math.exp(-rate))
    return None


def _rates_apart(share: np.ndarray, most: np.ndarray, rate: float, end: int, floor: float) -> bool:
    """Whether states fade at less than half of a rate, or each number of them at more than twice the rate.

    Slow channels may be a small part of the whole: sooner is only what is so of the number that keeps ``most``. Layers
    on top of each other decay as k^p times a factor^k: the rates of the second quarter and of the second half are too
    small then, by p log(2) over their steps, and twice the late one less the early one is the factor's.
    """
    places = [end // 4, end // 2, end]
    if min(share[end], most[end]) <= floor:
        return False
    early, late = -np.diff(np.log(share[places])) / np.diff(places)
    steps = places[2] - places[1]
    longer = max(late, 2 * late - early) * RATES < rate and (rate - late) * steps > _TOLD
    if not np.isfinite(most[places]).all():
        return bool(longer)
    early, late = -np.diff(np.log(most[places])) / np.diff(places)
    return bool(longer or (min(late, 2 * late - early) > RATES * rate and (late - rate) * steps > _TOLD))


CHECK = Check("decay", decay, place=110, share=0.08)
