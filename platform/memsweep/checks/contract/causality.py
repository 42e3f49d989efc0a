"""Causality: output t depends on inputs 0 ... t alone, and not on how many more there are.

A module that computes in chunks may look ahead at the border of a chunk and nowhere else, or behind a certain step.
So the sequence is cut at every power of two to the horizon, at multiples of 8, 50 and 64, which the usual sizes of
chunks are, at the steps beside them, and at random steps.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from memsweep.checks.apart import difference, size_of
from memsweep.checks.finding import Finding, finding, show
from memsweep.checks.part import Check
from memsweep.checks.subject import Subject
from memsweep.streams import Stream

CHUNK = 8
"""Every multiple of it is a cut."""
_BORDERS = ((1, 64), (CHUNK, 512), (50, 2048), (64, 2048))
"""Multiples that are cuts, and up to which step, times the effort: sizes of chunks are powers of two, or round."""
_RANDOM = 16
_TOGETHER = 32
"""Cuts of one call."""


def causality(subject: Subject, seconds: float) -> Finding:
    """Outputs before steps from which the inputs are others; and beginnings alone against the whole."""
    start = time.monotonic()
    leak, where, looked = _leaks(subject, start + 0.7 * seconds)
    apart, alone, lengths = (0.0, 0, []) if subject.fixed else _beginnings(subject, start + seconds)
    faults = []
    if leak > subject.tolerance:
        faults.append(
            f"It is not causal: other inputs from step {where} on change outputs before it (by "
            f"{size_of(leak)}). Mask the future."
        )
    if apart > subject.tolerance:
        beginning = "step" if alone == 1 else f"{alone} steps"
        faults.append(
            f"It gives outputs that depend on the length: those of the first {beginning} alone differ from those in "
            f"{subject.horizon} (by {size_of(apart)})."
        )
    numbers = {
        "leak": leak,
        "prefix_difference": apart,
        "length": subject.horizon,
        "cuts": looked,
        "prefixes": lengths,
    }
    well = f"Inputs of later steps change outputs by at most {show(max(leak, apart))} of their size, {_named(looked)}"
    if lengths:
        one = "a beginning alone gives what it gives"
        several = f"{len(lengths)} beginnings alone give what they give"
        well += f"; {one if len(lengths) == 1 else several} in {subject.horizon} steps"
    return finding("causality", f"{well}.", numbers, faults=faults)


def _leaks(subject: Subject, end: float) -> tuple[float, int, list[int]]:
    """The largest leak over the cuts, the first cut that has one, and the cuts that were looked at."""
    worst, where, looked = 0.0, 0, list[int]()
    groups = list(_groups(subject))
    for number, (length, cuts) in enumerate(groups):
        if looked and time.monotonic() > end:
            left = sorted(set(itertools.chain.from_iterable(cuts for _, cuts in groups[number:])) - {*looked})
            subject.left_out.append(f"{len(left)} of {len(left) + len(looked)} cuts, from step {left[0]} on")
            break
        for cut, size in _changes(subject, length, cuts).items():
            worst = max(worst, size)
            where = cut if size > subject.tolerance and not 0 < where < cut else where
            looked.append(cut)
    return worst, where, sorted(set(looked))


def _groups(subject: Subject) -> Iterator[tuple[int, list[int]]]:
    """Lengths with the cuts of one call: at the horizon first, then at the first length that holds them."""
    horizon = subject.horizon
    powers = _inside([near for each in _powers(horizon) for near in (each - 1, each, each + 1)], horizon)
    borders = [step for every, to in _BORDERS for step in range(every, to * subject.effort + 1, every)]
    borders = _inside([near for each in borders for near in (each, each + 1)], horizon)
    random = Stream(0, "cuts").generator().integers(1, max(2, horizon), _RANDOM * subject.effort).tolist()
    for cuts in _split(powers):
        yield horizon, cuts
    for cuts in _split(sorted({*borders, *_inside(random, horizon)} - {*powers})):
        yield (horizon if subject.fixed else min(horizon, 1 << (cuts[-1] + CHUNK).bit_length())), cuts


def _powers(horizon: int) -> list[int]:
    return [1 << power for power in range(horizon.bit_length())] + [horizon // 3, horizon - 1]


def _inside(steps: Sequence[int], horizon: int) -> list[int]:
    return sorted({step for step in steps if 0 < step < horizon})


def _split(cuts: Sequence[int]) -> Iterator[list[int]]:
    for start in range(0, len(cuts), _TOGETHER):
        yield list(cuts[start : start + _TOGETHER])


def _changes(subject: Subject, length: int, cuts: Sequence[int]) -> dict[int, float]:
    """How far other inputs from each cut on change the outputs before it."""
    inputs, others = subject.noise(1, length), subject.noise(1, length, 5, 3.0)
    given = torch.cat([inputs, *(torch.cat([inputs[:, :cut], others[:, cut:]], 1) for cut in cuts)])
    whole, *changed = subject(given).split(1)
    return {cut: difference(each[:, :cut], whole[:, :cut]) for cut, each in zip(cuts, changed, strict=True)}


def _beginnings(subject: Subject, end: float) -> tuple[float, int, list[int]]:
    """The largest difference of a beginning alone from the whole, its number of steps, and the numbers looked at."""
    horizon = subject.horizon
    whole: Tensor = subject(subject.noise(1, horizon))
    steps = _inside([near for each in _powers(horizon) for near in (each, each + 1)], horizon)
    worst, where, looked = 0.0, 0, list[int]()
    for step in steps:
        if looked and time.monotonic() > end:
            subject.left_out.append(f"beginnings of {', '.join(map(str, steps[len(looked) :]))} steps alone")
            break
        size = difference(subject(subject.noise(1, horizon)[:, :step]), whole[:, :step])
        worst, where = max((worst, where), (size, step))
        looked.append(step)
    return worst, where, looked


def _named(cuts: Sequence[int]) -> str:
    """The cuts in words: how many, and which of the two rules they keep to the end."""
    power = max((each for each in cuts if each & (each - 1) == 0), default=0)
    multiple, known = 0, set(cuts)
    while multiple + CHUNK in known:
        multiple += CHUNK
    also = f" and every multiple of {CHUNK} to {multiple}" if multiple else ""
    return f"at {len(cuts)} cuts: every power of two to {power}{also}, with the steps beside them, and more"


CHECK = Check("causality", causality, place=30, share=0.08, needs=("shapes", "determinism", "batch"))
