"""A module's behaviour in training mode, in which a trial runs it thousands of times for all of its seeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from memsweep.models.contracts import TOLERANCES, difference

SAME_WEIGHTS = (
    "begins with the same weights for all seeds: it draws none, or seeds a generator itself (manual_seed). All seeds "
    "then train alike, but for dropout: an interval over seeds holds the choice of test sequences alone. Leave such a "
    "seed out"
)
"""The words for a module to which seeds make no difference, to follow its name, without a full stop."""

UNSEEDED = (
    "begins with other weights each time it is built from the same seed: it draws from a generator of its own, such as "
    "np.random.default_rng() without a seed, or leaves weights uninitialized (torch.empty). Draw all from torch's "
    "global generator, which is seeded for each seed"
)
"""The words for a module whose weights do not follow from its seed, to follow its name, without a full stop."""


@dataclass(frozen=True)
class InTraining:
    """The effects of calls in training mode.

    Attributes:
        changed: names of the buffers that a call changes, such as running statistics.
        draws: it draws random numbers (dropout).
        kept: the largest relative difference between outputs that must be equal: of two calls in training with the
            same inputs, buffers and random numbers, and of two in evaluation, one before and one behind those.
        tolerance: the difference that rounding explains.
    """

    changed: frozenset[str]
    draws: bool
    kept: float
    tolerance: float

    @property
    def breach(self) -> str | None:
        """The fault, to follow the module's name, without a full stop; None: the module keeps nothing."""
        if self.kept <= self.tolerance:
            return None
        return (
            f"gives other outputs for the same inputs once it was called in training (relative difference "
            f"{self.kept:.1g}): it keeps a state from call to call, or draws from a generator of its own. Start each "
            "call from a state of zero, and draw from torch's own generator"
        )


def in_training(module: nn.Module, run: Callable[[Tensor], Tensor], inputs: Tensor) -> InTraining:
    """Calls a module in training mode; its weights, buffers and mode are as before afterwards.

    Args:
        module: in evaluation mode.
        run: the outputs of the module, in the mode in which it is.
        inputs: ``[B, T, I]`` or ids ``[B, T]``.
    """
    before = {name: value.detach().clone() for name, value in tensors_of(module).items()}
    outputs = []
    with torch.no_grad(), seeded(0):
        rested = run(inputs)
    module.train()
    try:
        for seed, given in ((0, inputs), (1, inputs), (2, inputs.flip(0, 1)), (0, inputs)):
            _restore(module, before)
            with torch.no_grad(), seeded(seed):
                outputs.append(run(given))
        changed = _changed(dict(module.named_buffers()), before)
    finally:
        module.eval()
        _restore(module, before)
    with torch.no_grad(), seeded(0):
        kept = max(difference(outputs[-1], outputs[0]), difference(run(inputs), rested))
    return InTraining(changed, not torch.equal(*outputs[:2]), kept, TOLERANCES.get(rested.dtype, 0.1))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's, numpy's and Python's global generators seeded, on the processor; as before afterwards."""
    python, legacy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    """Whether two modules of different seeds have parameters, and these and all buffers are equal."""
    own, others = ({name: each.detach() for name, each in tensors_of(module).items()} for module in (one, other))
    return any(True for _ in one.parameters()) and same_values(own, others)


def same_values(own: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> bool:
    """Whether tensors have the same names, shapes and values, in the precision of the first; nan equals nan."""
    return own.keys() == others.keys() and all(_equal(value, others[name]) for name, value in own.items())


def _equal(one: Tensor, other: Tensor) -> bool:
    other = other.to(one.dtype)
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module, by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _changed(now: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> frozenset[str]:
    """The buffers that were there before, with the same shape, and have other values."""
    there = {name: value for name, value in now.items() if name in before and before[name].shape == value.shape}
    return frozenset(name for name, value in there.items() if not torch.equal(value, before[name]))


def _restore(module: nn.Module, before: Mapping[str, Tensor]) -> None:
    for name, value in tensors_of(module).items():
        if name in before and before[name].shape == value.shape:
            value.data.copy_(before[name])
