"""Diagonal layers with gates of the input, in compiled code, from the input to the answer.

    h_t = a_t h_{t-1} + b_t,   y_t = R h_t + d x_t,   a_t and b_t functions of W x_t + b of the gates

with a and b of ``memsweep.models.deep.unit_selective``. Maps, gates, recurrence and readout are one pass. A series of
gates or states never goes to memory: drives W x + b are kept, and one state for each chunk of steps. The way back
computes the others once more.

Letters: N replicas, B batch, T time, F features, M width, G gates with the candidate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.compiled.library import Kernel, readable, shares_of_rows
from memsweep.recurrence.layer import require_fit

CHUNK = 64
"""Steps, of one sequence or of several, between two states that are kept for the way back."""
CANDIDATE, DECAY = "candidate", "decay"
GATES = {
    "min_gru": ("update",),
    "min_lstm": ("forget", "input"),
    "hgrn": ("forget",),
    "rg_lru": ("recurrence", "input"),
}
"""By unit, in the order of the kernel: its gates, to which the candidate is added."""
_VECTOR = 64
"""Bytes of the widest vector of any processor: the units of a gate fill whole ones."""
_MAPS = tuple(f"{kind}_{place}" for kind in ("encoder", "bias") for place in range(3))
_WEIGHTS = (*_MAPS, "decay", "readout", "skip")


class CompiledGated(Kernel):
    """The layers without autograd. The numbers of one replica depend neither on the others nor on threads."""

    function = "selective_layer"  # SelectiveLayerCall of selective_layer.cpp
    numbers = ("backward", "unit", "models", "batch", "horizon", "features", "width", "kept_numbers", "chunk")
    tensors = ("read", "given", *_WEIGHTS, "kept", "answers", "of_read", *(f"of_{name}" for name in _WEIGHTS))

    @classmethod
    def fitting(cls, x_NBTF: Tensor) -> Self | None:
        """The layers for numbers of this type and place; None where plain torch computes instead."""
        return cls.load(x_NBTF.dtype) if x_NBTF.device.type == "cpu" else None

    def answers(self, unit: str, x_NBTF: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """y, ``[N, B, T, F]``; differentiable once.

        Args:
            unit: one of ``GATES``.
            x_NBTF: the inputs.
            weights: ``encoder_*`` ``[N, M, F]`` and ``bias_*`` ``[N, M]`` of the gates and of the candidate; ``decay``
                Lambda ``[N, M]`` where the unit has one; ``readout`` R ``[N, F, M]``, ``skip`` d ``[N, F]``.

        Raises:
            ValueError: shapes or dtypes that do not fit.
        """
        names = (*GATES[unit], CANDIDATE)
        own = {
            f"{kind}_{place}": weights[f"{kind}_{name}"]
            for kind in ("encoder", "bias")
            for place, name in enumerate(names)
        }
        own |= {name: weights[name] for name in (DECAY, "readout", "skip") if name in weights}
        models, features, width = len(x_NBTF), x_NBTF.shape[-1], own["readout"].shape[-1]
        shapes = {"encoder": [models, width, features], "bias": [models, width], DECAY: [models, width]}
        shapes |= {"readout": [models, features, width], "skip": [models, features]}
        require_fit(x_NBTF.dtype, **{name: (each, [shapes[name.partition("_")[0]]]) for name, each in own.items()})
        found: Tensor = _Run.apply(self, [*GATES].index(unit), tuple(own), x_NBTF, *own.values())
        return found

    def kept(self, x_NBTF: Tensor, given: Mapping[str, Tensor]) -> Tensor:
        """Room for the drives and for a state of every chunk."""
        models, batch, horizon, _ = x_NBTF.shape
        lanes, rows = _VECTOR // x_NBTF.element_size(), batch * horizon
        width = -(-given["readout"].shape[2] // lanes) * lanes
        drives = rows * width * sum(name.startswith("encoder") for name in given)
        return x_NBTF.new_empty(models, drives + -(-rows // CHUNK) * width)

    def call(self, unit: int, named: dict[str, Tensor], backward: bool) -> None:
        """Fills ``answers`` and what is ``kept``, or the gradients."""
        tensors = readable(named, named["read"].dtype)
        _, batch, horizon, features = tensors["read"].shape
        self.run(
            tensors,
            shares_of_rows(tensors, "models"),
            backward=backward,
            unit=unit,
            batch=batch,
            horizon=horizon,
            features=features,
            width=tensors["readout"].shape[2],
            kept_numbers=tensors["kept"].shape[1] if "kept" in tensors else 0,
            chunk=CHUNK,
        )


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, compiled: CompiledGated, unit: int, names: tuple[str, ...], x_NBTF: Tensor, *weights: Tensor
    ) -> Tensor:
        given = {"read": x_NBTF, **dict(zip(names, weights, strict=True))}
        answers_NBTF = torch.empty_like(x_NBTF, memory_format=torch.contiguous_format)
        kept = {"kept": compiled.kept(x_NBTF, given)} if any(ctx.needs_input_grad) else {}
        compiled.call(unit, {**given, **kept, "answers": answers_NBTF}, backward=False)
        ctx.compiled, ctx.unit, ctx.names = compiled, unit, names
        ctx.save_for_backward(*given.values(), *kept.values())
        return answers_NBTF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        names = ("read", *ctx.names)
        given = dict(zip((*names, "kept"), ctx.saved_tensors, strict=True))
        found = {f"of_{name}": torch.empty_like(given[name], memory_format=torch.contiguous_format) for name in names}
        ctx.compiled.call(ctx.unit, {**given, **found, "given": outer[0]}, backward=True)
        return None, None, None, *found.values()
