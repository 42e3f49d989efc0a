"""Calls of the compiled layer: tensors in, tensors out.

Letters: see memsweep.recurrence.layer.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from memsweep.errors import MemsweepError
from memsweep.recurrence.compiled.build import CannotBuildError, library_path
from memsweep.recurrence.layer import Gradients, Layer

KERNELS = "MEMSWEEP_KERNELS"
"""Environment variable: ``auto`` (compiled where possible, the default), ``compiled`` (or an error), ``plain``."""
_AUTO, _COMPILED, _PLAIN = "auto", "compiled", "plain"
_REALS = {torch.float64: "double", torch.float32: "float"}
_CODES = {"linear": 0, "hardtanh": 1, "tanh": 2, "relu": 3}
_OUTPUTS, _PULL, _LOSS, _LOSS_AND_GRADIENT = range(4)
_NUMBERS = ("mode", "dense", "sigma", "tau", "carried", "models", "batch", "horizon", "width", "inputs", "outputs")
_TENSORS = (
    *("live", "x", "target", "weight", "encoder", "bias", "matrix", "readout", "offset", "y", "loss"),
    *("of_encoder", "of_bias", "of_matrix", "of_readout", "of_offset"),
)
_log = logging.getLogger("memsweep")


class _Call(ctypes.Structure):
    """The structure ``Call`` of layer.cpp."""

    _fields_ = tuple((name, ctypes.c_int64) for name in _NUMBERS) + tuple((name, ctypes.c_void_p) for name in _TENSORS)


class Compiled:
    """The three operations of a layer (see ``memsweep.recurrence.layer.Implementation``), on the processor.

    Every model is computed by itself, sequence block by sequence block, in the thread that has it: its bits do not
    depend on the others, nor on the number of threads.
    """

    def __init__(self, function: Callable[..., int]) -> None:
        self._function = function

    def outputs(self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor) -> Tensor:
        y_NBTO = inputs_BTI.new_zeros(layer.models, *inputs_BTI.shape[:2], layer.outputs)
        self._run(_OUTPUTS, layer, inputs_BTI, live_N, {"y": y_NBTO})
        return y_NBTO

    def pulled(self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, grad_NBTO: Tensor) -> Gradients:
        found = Gradients.zeros_like(layer)
        self._run(_PULL, layer, inputs_BTI, live_N, {"y": grad_NBTO} | _named(found))
        return found

    def squared(
        self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, targets_BTO: Tensor, weights_T: Tensor, wanted: bool
    ) -> tuple[Tensor, Gradients | None]:
        loss_N = inputs_BTI.new_zeros(layer.models)
        found = Gradients.zeros_like(layer) if wanted else None
        tensors = {"target": targets_BTO, "weight": weights_T, "loss": loss_N} | (_named(found) if found else {})
        self._run(_LOSS_AND_GRADIENT if wanted else _LOSS, layer, inputs_BTI, live_N, tensors)
        return loss_N, found

    def _run(self, mode: int, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, more: dict[str, Tensor]) -> None:
        batch, horizon, inputs = inputs_BTI.shape
        tensors = {
            name: tensor.detach().contiguous() for name, tensor in ({"x": inputs_BTI} | layer.tensors() | more).items()
        }
        for name, tensor in tensors.items():
            if tensor.dtype != inputs_BTI.dtype or tensor.device.type != "cpu":
                raise ValueError(
                    f"{name} is {tensor.dtype} on {tensor.device}, the inputs are {inputs_BTI.dtype} on cpu"
                )
        call = _Call(
            mode=mode,
            dense=layer.matrix.ndim == 3,
            sigma=_CODES[layer.activation],
            tau=_CODES[layer.output],
            carried=layer.leak == 1.0,
            models=layer.models,
            batch=batch,
            horizon=horizon,
            width=layer.width,
            inputs=inputs,
            outputs=layer.outputs,
            **{name: tensor.data_ptr() for name, tensor in tensors.items()},
        )
        rows = torch.nonzero(live_N).flatten().tolist()
        shares = [rows[start :: torch.get_num_threads()] for start in range(torch.get_num_threads())]
        _in_threads(functools.partial(self._share, call, layer.models), [share for share in shares if share])

    def _share(self, call: _Call, models: int, rows: Sequence[int]) -> None:
        mine = _Call.from_buffer_copy(call)
        live = (ctypes.c_uint8 * models)()
        for row in rows:
            live[row] = 1
        mine.live = ctypes.cast(live, ctypes.c_void_p)
        status = self._function(ctypes.byref(mine))
        if status == 2:
            raise MemoryError(f"there is no memory for the states of one layer over {call.horizon} steps")
        if status != 0:
            raise ValueError("the compiled layer does not know this pair of activations; see refusal()")


def _in_threads(work: Callable[[Sequence[int]], None], shares: Sequence[Sequence[int]]) -> None:
    if len(shares) == 1:
        work(shares[0])
    elif shares:
        with ThreadPoolExecutor(len(shares)) as pool:  # the library lets go of Python's lock
            list(pool.map(work, shares))


def _named(gradients: Gradients) -> dict[str, Tensor]:
    return {f"of_{name}": tensor for name, tensor in gradients._asdict().items()}


def refusal(layer: Layer, inputs: Tensor) -> str:
    """Why the compiled code cannot compute this layer; empty if it can."""
    if inputs.device.type != "cpu":
        return f"the numbers are on {inputs.device}"
    if inputs.dtype not in _REALS:
        return f"the numbers are {inputs.dtype}"
    if layer.leak not in (0.0, 1.0) or layer.gain != 1.0:
        return "it wants a leak of 0 or 1 and a gain of 1"
    if layer.activation != "linear" and layer.output != "linear":
        return "it knows one activation, inside or outside the recurrence"
    if layer.activation == "linear" and layer.leak:
        return "a linear recurrence wants its leak within the matrix"
    return ""


def compiled(dtype: torch.dtype) -> Compiled | None:
    """The compiled layer for numbers of this type; None where plain torch is to run.

    Raises:
        MemsweepError: the environment asks for what is not there, or says something unknown.
    """
    wish = os.environ.get(KERNELS, "") or _AUTO
    if wish not in (_AUTO, _COMPILED, _PLAIN):
        raise MemsweepError(f"{KERNELS} is {wish!r}; allowed: {_AUTO}, {_COMPILED}, {_PLAIN}.")
    if wish == _PLAIN or dtype not in _REALS:
        return None
    found = _loaded(dtype)
    if isinstance(found, Compiled):
        return found
    if wish == _COMPILED:
        raise found
    _tell(str(found))
    return None


@functools.cache
def _loaded(dtype: torch.dtype) -> Compiled | CannotBuildError:
    try:
        library: Any = ctypes.CDLL(str(library_path(_REALS[dtype])))
    except CannotBuildError as error:
        return error
    except OSError as error:
        return CannotBuildError(f"the compiled recurrences cannot be loaded: {error}")
    function = library.memsweep_layer
    function.argtypes, function.restype = [ctypes.POINTER(_Call)], ctypes.c_int
    return Compiled(function)


@functools.cache
def _tell(reason: str) -> None:
    _log.warning("nonlinear recurrences run as torch loops over time, five to thirty times slower: %s", reason)
