"""A whole stack without an encoder as one compiled call; see ``memsweep.models.deep.fused_stack``.

Of the units of that call, the GRU alone answers with its states (``recurrence/compiled/cpp/stack_of_inputs.h``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from memsweep.models.deep.around_unit import Dropout
from memsweep.models.deep.fused_stack import CompiledStack, knows


class CompiledStackOfInputs(CompiledStack):
    """Stacks whose first layer reads the inputs, with or without features that are dropped.

    Attributes:
        factors: as of ``CompiledDroppedStack``; None: nothing is dropped.
    """

    function = "stack_of_inputs"  # StackOfInputsCall of stack_of_inputs.cpp
    tensors = (*CompiledStack.tensors, "factors")  # type: ignore[assignment]
    factors: Tensor | None = None

    def _run(
        self,
        mode: int,
        config: Any,
        inputs_BTI: Tensor,
        outputs: int,
        tensors: Mapping[str, Tensor],
        live_N: Tensor | None = None,
    ) -> None:
        if self.factors is not None:
            copies = len(tensors["weights"]) // len(self.factors)
            tensors = {**tensors, "factors": self.factors.repeat_interleave(copies, 0)}
        super()._run(mode, config, inputs_BTI, outputs, tensors, live_N)


def compiled_without_encoder(
    config: Any, inputs_BTI: Tensor, dropout: Dropout | None, first_row: int
) -> CompiledStackOfInputs | None:
    """The compiled call for stacks of a config without an encoder; arguments and result as of ``dropped_stack``."""
    if not knows(dataclasses.replace(config, dropout=0.0), inputs_BTI.shape[1]):
        return None
    kernel = CompiledStackOfInputs.load(inputs_BTI.dtype)
    if kernel is not None and dropout is not None:
        kernel.factors = dropout.factors_of_rows(first_row, inputs_BTI)
    return kernel
