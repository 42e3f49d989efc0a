"""Memory over inputs: how strongly the last output of a trained model depends on the input some steps before.

The memory function starts from rest. A model whose decay is a function of the input, or whose states saturate, has a
memory of its own along every input: it keeps some and forgets others. So the derivative of the last output by each
earlier input is taken at test sequences, and its size by lag is given for the typical input and for the largest found.
The largest of some sequences is a lower bound of the worst case over all inputs. Of a linear model all are one: the
norm of its impulse response.

Letters: S sequences, T time (horizon), I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from memsweep.data.task import as_read
from memsweep.models.base import Model, Weights, as_linear

HIGH = 0.9
"""The quantile between the typical sequence and the largest."""


def influence(run: Callable[[Tensor], Tensor], inputs_STI: Tensor) -> Tensor:
    """||dy_T / dx_{T-k}||, the Frobenius norm over outputs and inputs, by lag k: ``[S, T]``, float64.

    Args:
        run: the model, ``[S, T, I]`` -> ``[S, T, O]``; no sequence depends on another one.
        inputs_STI: the sequences.
    """
    given = inputs_STI.detach().requires_grad_()
    with torch.enable_grad():
        last_SO = run(given)[:, -1]
        squares_ST = torch.zeros(given.shape[:2], dtype=torch.float64)
        for output_S in last_SO.unbind(-1):
            (slope_STI,) = torch.autograd.grad(output_S.sum(), given, retain_graph=True)
            squares_ST += slope_STI.to("cpu", torch.float64).square().sum(-1)
    return squares_ST.sqrt().flip(1)


def memory_rows(model: Model, weights: Weights, inputs: Tensor) -> Iterator[dict[str, Any]]:
    """The rows of one replica: by ``lag`` the ``median`` over the sequences, the ``high`` quantile and the ``largest``.

    Of a linear model from its impulse response, which all sequences share.
    """
    horizon, linear = model.signature.horizon, as_linear(model)
    if linear is not None:
        with torch.no_grad():
            norms_ST = linear.response(weights, horizon).kernel[:1].to("cpu", torch.float64).norm(dim=(1, 2))
    else:
        example = next(iter(weights.values()))
        read = as_read(inputs, model.signature.inputs, example.dtype).to(example)  # tasks draw numbers in float64
        norms_ST = influence(lambda given: model.outputs(weights, given)[0], read[:, :horizon])
    middle_T, high_T = torch.quantile(norms_ST, torch.tensor([0.5, HIGH], dtype=torch.float64), 0)
    values = torch.stack([middle_T, high_T, norms_ST.amax(0)], 1)
    for lag, (middle, high, largest) in enumerate(values.tolist()):
        yield {"lag": lag, "median": middle, "high": high, "largest": largest}
