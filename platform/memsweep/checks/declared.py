"""The decay that a module declares, which is optional.

The ecosystem has customs for the step form (``carry``) and none for decay: every library computes one under another
name (``g``, ``gk``, ``A_log``, ``dt``). A method ``decay`` is the smallest thing to add.

Letters: B batch, T time (length), M channels (modes) of all layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from memsweep.checks.apart import Effect, effect_of, rounding
from memsweep.checks.carry import step_form
from memsweep.checks.subject import PREFIX, Subject
from memsweep.models.base import Model, as_linear
from memsweep.models.contracts import default_dtype
from memsweep.models.module.steps import method_of, positional


def has_decay(module: nn.Module) -> bool:
    """Whether a module declares how fast it forgets."""
    return method_of(module, "decay") is not None or linear(module) is not None


def reads_input(module: nn.Module) -> bool:
    """Whether the declared decay depends on the input: ``decay`` takes one."""
    method = method_of(module, "decay")
    return method is not None and len(positional(method)) > 0


def decay_of(subject: Subject, inputs: Tensor) -> Tensor | None:
    """The declared factors by which channels shrink from a step to the next: ``[B, T, M]`` in float64, at least 0.

    ``decay(x)`` gives ``[B, T, ...]``; ``decay()`` and the eigenvalues of a registered linear model hold at every step.

    Args:
        subject: the module.
        inputs: ``[B, T, I]`` or ``[B, T]``.

    Raises:
        ValueError: it gives another shape.
    """
    dtype = subject.reference
    module = subject.at(dtype)
    method = method_of(module, "decay")
    batch, length = inputs.shape[:2]
    with torch.no_grad(), default_dtype(dtype):
        if method is not None and positional(method):
            declared = torch.as_tensor(method(subject.cast(inputs, dtype)))
            if tuple(declared.shape[:2]) != (batch, length):
                raise ValueError(
                    f"decay(x) gives {tuple(declared.shape)} for inputs of {batch} sequences and {length} steps; it "
                    f"must give ({batch}, {length}, channels)"
                )
            return declared.detach().abs().to("cpu", torch.float64).reshape(batch, length, -1)
        constant: Any = None
        if method is not None:
            constant = torch.as_tensor(method())
        elif (known := linear(module)) is not None:
            constant = known.eigenvalues({name: weight.unsqueeze(0) for name, weight in module.named_parameters()})
    if constant is None:
        return None
    return constant.detach().abs().to("cpu", torch.float64).reshape(1, 1, -1).expand(batch, length, -1)


@dataclass(frozen=True)
class InStates:
    """The memory in the states of a change of the noise while the input is constant, ``[C, length]`` each.

    No readout is between: what a flat one hides is seen here.

    Attributes:
        effect: as that of ``Subject.retention``.
        most: the share that is left of the number of the states that keeps the most of its own beginning; infinite
            where one began with nothing but rounding.
        any: whether some state differs at all, be it by rounding, ``[C]``.
    """

    effect: Effect
    most: Tensor
    any: Tensor

    def moved(self) -> tuple[int, int]:
        """How many rows moved, and of how many finite ones."""
        return self.effect.moved()


def kept_in_states(subject: Subject, constants: Tensor, length: int) -> InStates | None:
    """The memory in the states of the smallest change that moves them; None where they stay inside."""
    form = step_form(subject, subject.reference)
    if form is None or form.read is None or form.start is None:
        return None
    inputs = subject.held(constants, length)

    def left(size: float) -> InStates:
        both = torch.cat([inputs, subject.changed(inputs, slice(0, PREFIX), size)])
        return _in_states(subject, form, both, size)

    found, _ = subject.smallest_seen(left)
    return found if found.most.shape[1] else None


def _in_states(subject: Subject, form: Any, both: Tensor, change: float) -> InStates:
    """The memory in the states; the second half of the sequences is changed. Empty where they hold no real numbers."""
    dtype, count = subject.reference, len(both) // 2
    both, state = subject.cast(both, dtype), form.start(len(both))
    kept, most = list[Tensor](), list[Tensor]()
    largest, begin = torch.zeros(count, dtype=torch.float64), torch.empty(0)
    with torch.no_grad(), default_dtype(dtype):
        for t in range(both.shape[1]):
            _, state = form.read(both[:, t : t + 1], state)
            moved, size = _apart(state, count)
            if t >= PREFIX and not moved.shape[1]:
                break
            largest = torch.maximum(largest, size.norm(dim=1))
            if t >= PREFIX:
                kept.append(moved.norm(dim=1))
                if t == PREFIX:
                    begin = moved * (moved > rounding(subject.inside) * largest.unsqueeze(1))
                same = moved.shape == begin.shape  # a cache grows
                shares = moved / begin if same else torch.full((len(moved), 1), torch.inf)
                most.append(shares.nan_to_num(torch.inf, torch.inf).amax(1))
    if not kept:
        return InStates(Effect(torch.empty(count, 0), largest), torch.empty(count, 0), torch.zeros(count).bool())
    apart = torch.stack(kept, 1)
    return InStates(effect_of(apart, largest, subject.inside, change), torch.stack(most, 1), apart.any(1))


def _apart(state: Any, count: int) -> tuple[Tensor, Tensor]:
    """The differences between the states of the first and of the last ``count`` sequences, and their sizes.

    Both are absolute, ``[count, E]``.
    """
    apart, sizes = ([torch.zeros(count, 0, dtype=torch.float64)] for _ in range(2))
    for leaf in tree_leaves(state):
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()) and 2 * count in leaf.shape:
            rows = leaf.movedim(leaf.shape.index(2 * count), 0).flatten(1)
            apart.append((rows[count:] - rows[:count]).abs().to("cpu", torch.float64))
            sizes.append(rows[:count].abs().to("cpu", torch.float64))
    return torch.cat(apart, 1), torch.cat(sizes, 1)


def linear(module: nn.Module) -> Model | None:
    """A registered model that is linear: its eigenvalues hold for all inputs."""
    return as_linear(module) if isinstance(module, Model) else None
