"""Padding on either side of a sequence, under the mask that the module takes, against the sequence alone."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from memsweep.checks.apart import difference, size_of
from memsweep.checks.carry import step_form
from memsweep.checks.finding import Finding, Status, finding, not_measured, show
from memsweep.checks.part import Check
from memsweep.checks.subject import Subject, first
from memsweep.models.contracts import default_dtype

_MASKS: Mapping[str, tuple[bool, ...]] = {
    "attention_mask": (True,),
    "padding_mask": (False, True),
    "key_padding_mask": (False,),
    "src_key_padding_mask": (False,),
    "mask": (True, False),
}
"""Name of an argument -> whether True stands for a step that is there; in the order in which it is tried."""
_REAL, _PADS = 24, (1, 5, 16)
"""Steps of the sequence, and of its padding."""


def padding(subject: Subject, seconds: float) -> Finding:
    """Whether outputs at the steps that are there depend on padding before or behind them."""
    takes = inspect.signature(subject.at(subject.reference).forward).parameters
    name = next((each for each in _MASKS if each in takes), None)
    real = min(_REAL, subject.horizon - max(_PADS))
    if name is None or subject.fixed or real < 1:
        why = f"forward takes no mask ({', '.join(_MASKS)})." if name is None else "the horizon leaves no room for it."
        return not_measured("padding", why, Status.SKIP)
    there, call = _call(subject, name, "position_ids" in takes)
    if call is None:
        why = f"with {name} of all steps ([B, T]) it fails, or gives other outputs than without."
        return not_measured("padding", why, Status.SKIP if name == "mask" else Status.NOTE)
    worst = _beside_padding(subject, call, real)
    handed = {side: _handed_on(subject, name, there, real, side) for side in ("left", "right")}
    stay = {side: size for side, size in handed.items() if size is not None and size > subject.tolerance}
    faults = [
        f"{words} change the outputs of the steps that are there, under {name}: by {size_of(size)}."
        for size, words in worst.values()
        if size > subject.tolerance
    ]
    said = "Padding on the {} stays in the state: the step that follows differs by {}."
    notes = [said.format(side, size_of(size)) for side, size in stay.items()]
    if "left" in stay and not faults:
        faults, notes = notes, []
    found = {side: size for side, (size, _) in worst.items()}
    numbers = {"mask": name, **found, "follows_left": handed["left"], "follows_right": handed["right"]}
    well = f"Padding of 1 to {max(_PADS)} steps under {name} changes outputs by at most {show(max(found.values()))}."
    return finding("padding", well, numbers, faults=faults, notes=[] if faults else notes)


def _beside_padding(subject: Subject, call: _Call, real: int) -> dict[str, tuple[float, str]]:
    """By side, the largest change of outputs by padding, and which padding it was."""
    worst: dict[str, tuple[float, str]] = {}
    for regime, inputs in subject.regimes(real).items():
        for side, pads in itertools.product(("left", "right"), _PADS):
            apart = max(_apart(subject, call, inputs, side, pads, garbage) for garbage in (False, True))
            words = f"{pads} steps of padding on the {side} (inputs: {regime})"
            worst[side] = max(worst.get(side, (0.0, "")), (apart, words))
    return worst


_Call = Callable[[Tensor, Tensor], Any]
"""The answer for inputs and for a mask ``[B, T]`` in which True is a step that is there."""


def _call(subject: Subject, name: str, positions: bool) -> tuple[bool, _Call | None]:
    """With the meaning of True under which a mask of all steps changes nothing."""
    inputs = subject.noise(2, subject.length(_REAL))
    for there in _MASKS[name]:

        def call(given: Tensor, mask: Tensor, there: bool = there) -> Any:
            own = mask if there else ~mask
            where = {"position_ids": (mask.long().cumsum(1) - 1).clamp(min=0)} if positions else {}
            return _run(subject, given, {name: own, **where})

        try:
            found = first(call(inputs, torch.ones(inputs.shape[:2], dtype=torch.bool)))
        except Exception:  # it wants another mask
            continue
        if difference(found.to("cpu", torch.float64), subject(inputs)) <= subject.tolerance:
            return there, call
    return True, None


def _run(subject: Subject, inputs: Tensor, given: Mapping[str, Any]) -> Any:
    """An answer under a mask of booleans, or of whole numbers where a module wants these."""
    dtype = subject.reference
    with torch.no_grad(), default_dtype(dtype):
        try:
            return subject.at(dtype)(subject.cast(inputs, dtype), **given)
        except (RuntimeError, TypeError):
            numbers = {name: value.long() for name, value in given.items()}
            return subject.at(dtype)(subject.cast(inputs, dtype), **numbers)


def _padded(subject: Subject, inputs: Tensor, side: str, pads: int, garbage: bool) -> tuple[Tensor, Tensor]:
    """Inputs beside padding, of zeros or of noise, and which steps are there."""
    make = subject.noise if garbage else subject.zeros
    pad = make(len(inputs), pads)
    there = torch.ones(inputs.shape[:2], dtype=torch.bool)
    parts = [(pad, torch.zeros(pad.shape[:2], dtype=torch.bool)), (inputs, there)]
    parts = parts if side == "left" else parts[::-1]
    return torch.cat([part for part, _ in parts], 1), torch.cat([mask for _, mask in parts], 1)


def _apart(subject: Subject, call: _Call, inputs: Tensor, side: str, pads: int, garbage: bool) -> float:
    given, mask = _padded(subject, inputs, side, pads, garbage)
    outputs = first(call(given, mask)).to("cpu", torch.float64)
    return difference(outputs[:, mask[0]], subject(inputs))


def _handed_on(subject: Subject, name: str, there: bool, real: int, side: str) -> float | None:
    """How far the step differs that follows a padded beginning by its state; None where no state is handed on.

    It is given the mask of all steps so far, or of its own alone: modules that hold keys want the first.
    """
    form, dtype = step_form(subject, subject.reference), subject.reference
    if form is None or form.read is None or form.start is None or not form.any_length or real < 2:
        return None
    inputs = subject.noise(2, real)
    given, mask = _padded(subject, inputs[:, :-1], side, 5, True)
    longer = torch.cat([mask, torch.ones(2, 1, dtype=torch.bool)], 1)
    found = []
    for follows in (longer, longer[:, -1:]):
        with torch.no_grad(), default_dtype(dtype):
            try:
                begun = {name: _as_wanted(mask, there)}
                _, state = form.read(subject.cast(given, dtype), form.start(2), **begun)
                after, _ = form.read(subject.cast(inputs[:, -1:], dtype), state, **{name: _as_wanted(follows, there)})
            except Exception:  # it takes no such mask beside a state
                continue
        if after.shape[:2] == (2, 1):
            found.append(difference(after.to("cpu", torch.float64), subject(inputs)[:, -1:]))
    return min(found, default=None)


def _as_wanted(mask: Tensor, there: bool) -> Tensor:
    return mask.long() if there else ~mask


CHECK = Check("padding", padding, place=140, share=0.04)
