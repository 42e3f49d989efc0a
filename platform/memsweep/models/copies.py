"""Copies of one module, computed together by ``torch.func.vmap`` where its operations are small.

They are the perturbed copies of a measurement, or the seeds of a trial in training.

An operation of torch takes microseconds, of however few numbers it is, and a loop over time has some at each step. So
copies that are computed one after the other pay for each of them. Together, an operation is one of all copies. Where
operations are large, copies together leave the cache, and one after the other is faster.

The numbers are those of one seed's copies, which a measurement takes alone, or of one trial's seeds: they do not depend
on what else is in a pack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from memsweep.models.steps_once import StepsOfCopies

COPIES_BUDGET = 64 << 20
"""Bytes of a slice of copies that are computed together. In 16 MiB, there are two or three of a long sequence."""
SMALL = 40 << 10
"""Mean bytes of what an operation gives of one copy, up to which copies are computed together."""

One = Callable[[dict[str, Tensor], Tensor], Tensor]
"""The outputs ``[B, T, O]`` of one copy, of its weights and the inputs."""


def takes_copies(model: Any, leading: Sequence[int] = (1, 2)) -> bool:
    """Whether a model computes copies together, where that is faster: see ``Copies``.

    Whether torch can is tried once, for copies alone.

    Args:
        model: any.
        leading: dimensions of its weights, ``[P, K]``: K copies of one replica. Training has no copies.
    """
    are_copies = len(leading) == 2 and leading[0] == 1 and leading[1] > 1
    return are_copies and getattr(model, "own_copies", None) is not None


def together_where_small(model: Any, own: Mapping[str, Tensor], inputs: Tensor) -> Tensor | None:
    """``Copies.outputs`` of a model that takes copies."""
    copies: Copies = model.own_copies
    return copies.outputs(own, inputs)


def takes_seeds(model: Any, leading: Sequence[int]) -> bool:
    """Whether a model in training computes the seeds of a trial together, where that is faster: see ``Copies``.

    Args:
        model: any.
        leading: dimensions of its weights, ``[P]``: one of each seed. In a measurement, there are copies as well.
    """
    return model.training and len(leading) == 1 and leading[0] > 1 and model.own_seeds is not None


def seeds_where_small(model: Any, own: Mapping[str, Tensor], inputs: Tensor) -> Tensor | None:
    """``Copies.outputs`` of a model that takes seeds."""
    seeds: Copies = model.own_seeds
    return seeds.outputs(own, inputs)


class Copies:
    """The copies of a module, together.

    Args:
        one: computes one copy.
    """

    def __init__(self, one: One) -> None:
        self._one = one
        self._known: dict[tuple[torch.Size, torch.dtype], bool] = {}

    def outputs(self, own: Mapping[str, Tensor], inputs: Tensor) -> Tensor | None:
        """The outputs of all copies of one replica.

        Args:
            own: the weights, ``[K, ...]`` each.
            inputs: ``[B, T, I]``, or symbols ``[B, T]``, of all copies.

        Returns:
            ``[K, B, T, O]``; None where they are to be computed one after the other: where no gradient is followed, of
            which vmap gains nothing, on another device than a processor, where operations are large, and where torch
            cannot.
        """
        is_climbed = torch.is_grad_enabled() and any(value.requires_grad for value in own.values())
        if not (is_climbed and inputs.device.type == "cpu" and self._pays(own, inputs)):
            return None
        try:
            return self.together(own, inputs)
        except Exception:  # one after the other, a fault of the module's own is said in its words
            return None

    def together(self, own: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """The outputs ``[K, B, T, O]`` by vmap, of any size; the arguments as of ``outputs``.

        Raises:
            RuntimeError: torch would compute an operation of it copy by copy, or not at all.
        """
        with StepsOfCopies(), _each_together():
            outputs: Tensor = torch.func.vmap(lambda copy: self._one(copy, inputs), randomness="error")(dict(own))
        return outputs

    def _pays(self, own: Mapping[str, Tensor], inputs: Tensor) -> bool:
        """By shapes and code alone, so that every machine takes the same way."""
        key = inputs.shape, inputs.dtype
        if key not in self._known:
            with _disable_current_modes():
                self._known[key] = self._is_small(own, inputs) and self._is_possible(own, inputs)
        return self._known[key]

    def _is_small(self, own: Mapping[str, Tensor], inputs: Tensor) -> bool:
        with torch.no_grad(), _Operations() as found:
            self._one({name: value[0] for name, value in own.items()}, inputs)
        return found.bytes <= SMALL * found.count

    def _is_possible(self, own: Mapping[str, Tensor], inputs: Tensor) -> bool:
        """Whether outputs and gradients can be had at this length: code may take another way than at a short one."""
        try:
            weights = {name: value[:2].detach().requires_grad_() for name, value in own.items()}
            torch.autograd.grad(self.together(weights, inputs).sum(), [*weights.values()], allow_unused=True)
        except Exception:  # torch refuses in many ways
            return False
        return True


@torch.enable_grad()
def have_equal_numbers(alone: One, own: Mapping[str, Tensor], inputs: Tensor) -> bool:
    """Whether torch computes two copies together, and outputs and gradients are those of one after the other."""

    def one_by_one(weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        return torch.stack([alone({name: value[row] for name, value in weights.items()}, inputs) for row in (0, 1)])

    found = list[list[Tensor]]()
    try:
        for compute in (Copies(alone).together, one_by_one):
            weights = {name: value.clone().requires_grad_() for name, value in own.items()}
            outputs = compute(weights, inputs)
            gradients = torch.autograd.grad(
                outputs.square().sum(), list(weights.values()), allow_unused=True, materialize_grads=True
            )
            found.append([outputs.detach(), *gradients])
    except Exception:  # torch refuses in many ways; the check before a study says what fails alone
        return False
    return all(torch.allclose(one, other, rtol=1e-8, atol=1e-10) for one, other in zip(*found, strict=True))


@contextmanager
def _each_together() -> Iterator[None]:
    """Within it, vmap refuses an operation that it would compute copy by copy, which is slower than without it."""
    functorch: Any = torch._C._functorch
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        functorch._set_vmap_fallback_enabled(before)


class _Operations(TorchDispatchMode):
    """Counts operations, and the bytes of the tensors that they give."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.bytes = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see memsweep.learning.memory.LiveBytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        answer = func(*args, **(kwargs or {}))
        self.count += 1
        given = answer if isinstance(answer, tuple | list) else (answer,)
        self.bytes += sum(each.nbytes for each in given if isinstance(each, Tensor))
        return answer
