"""A gated layer forward and backward, against torch's own: ``torch.nn.GRU`` and ``torch.nn.LSTM``.

Our units compute many models at once, and here one: the layer alone, with its gradients by weights and inputs. Both
sides have the same weights and inputs; states and gradients are compared first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks import harness
from benchmarks.harness import Options, Row
from memsweep import registry
from memsweep.streams import Stream

HORIZONS: Final = (100, 1000)
WIDTHS: Final = (64, 128)
BATCH: Final = 32
BY_ONEDNN: Final = ((64, 100, 1), (128, 100, 4), (128, 100, 16), (256, 100, 32), (512, 50, 32))
"""Widths, horizons and sequences of LSTMs in float32 for which ours calls torch's."""
# torch's order of the gates, and the sign of each: its GRU calls the share of a state that stays what ours calls new
_GATES: Final[dict[str, dict[str, int]]] = {
    "gru": {"reset": 1, "update": -1, "candidate": 1},
    "lstm": {"input": 1, "forget": 1, "candidate": 1, "output": 1},
}
_KINDS: Final = {"encoder": "weight_ih_l0", "matrix": "weight_hh_l0", "bias": "bias_ih_l0"}
_TOLERANCES: Final = {torch.float64: 1e-10, torch.float32: 1e-4}


class Pair:
    """One layer by a unit of ours, and by torch.

    Args:
        name: of the unit: gru or lstm.
        width: states, and inputs.
        horizon, batch: of the sequences.
        dtype: of weights and sequences.
    """

    def __init__(self, name: str, width: int, horizon: int, batch: int, dtype: torch.dtype) -> None:
        registry.discover()
        unit_class = registry.get(registry.UNIT, name)
        self.name, self.unit = name, unit_class(unit_class.Config(), width, width)
        drawn = self.unit.initial(horizon, Stream(0, "initial weights").generator())
        self.weights = {key: torch.from_numpy(each)[None].to(dtype).requires_grad_() for key, each in drawn.items()}
        noise = Stream(0, "inputs").generator()
        self.inputs = torch.from_numpy(noise.standard_normal((batch, horizon, width))).to(dtype).requires_grad_()
        self.outer = torch.from_numpy(noise.standard_normal((batch, horizon, width))).to(dtype)
        modules: dict[str, Callable[..., nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM}
        self.torchs = modules[name](width, width, batch_first=True, dtype=dtype)
        with torch.no_grad():
            for kind, place in _KINDS.items():
                parts = [sign * self.weights[f"{kind}_{gate}"][0] for gate, sign in _GATES[name].items()]
                getattr(self.torchs, place).copy_(torch.cat(parts))
            self.torchs.bias_hh_l0.zero_()
            if name == "gru":
                self.torchs.bias_hh_l0[2 * width :] = self.weights["bias_recalled"][0]

    def ours(self) -> tuple[Tensor, dict[str, Tensor]]:
        """States ``[B, T, M]``, and gradients by torch's names."""
        answers = self.unit.run(self.weights, self.inputs[None])[0]
        leaves: list[Tensor] = [self.inputs, *self.weights.values()]
        of_inputs, *found = torch.autograd.grad(answers, leaves, self.outer)
        named = dict(zip(self.weights, (each[0] for each in found), strict=True))
        joined = {
            place: torch.cat([sign * named[f"{kind}_{gate}"] for gate, sign in _GATES[self.name].items()])
            for kind, place in _KINDS.items()
        }
        recalled = {"recalled": named["bias_recalled"]} if self.name == "gru" else {}
        return answers, {"inputs": of_inputs} | joined | recalled

    def peer(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The same by torch; of its second bias, only what our GRU has too."""
        answers, _ = self.torchs(self.inputs)
        leaves = [self.inputs, *(getattr(self.torchs, place) for place in (*_KINDS.values(), "bias_hh_l0"))]
        of_inputs, *found, second = torch.autograd.grad(answers, leaves, self.outer)
        recalled = {"recalled": second.chunk(3)[2]} if self.name == "gru" else {}
        return answers, {"inputs": of_inputs} | dict(zip(_KINDS.values(), found, strict=True)) | recalled

    def compare(self) -> None:
        """Raises AssertionError where states or gradients differ by more than roundings."""
        (states, gradients), (expected, theirs) = self.ours(), self.peer()
        close = _TOLERANCES[states.dtype]
        torch.testing.assert_close(states, expected, rtol=close, atol=close)
        for name, gradient in theirs.items():
            torch.testing.assert_close(gradients[name], gradient, rtol=0.0, atol=close * float(gradient.norm()))


def measured(name: str, width: int, horizon: int, batch: int, dtype: str, pairs: int, shortest: float) -> Row:
    """One row."""
    pair = Pair(name, width, horizon, batch, getattr(torch, dtype))
    pair.compare()
    times = harness.alternate({"ours": pair.ours, "peer": pair.peer}, pairs=pairs, shortest=shortest)
    return {
        **{"peer": f"torch.nn.{name.upper()}", "dtype": dtype, "width": width, "horizon": horizon, "sequences": batch},
        "ratio": harness.ratio(times["peer"], times["ours"]),
        **{f"{side}_milliseconds": 1e3 * harness.median(each) for side, each in times.items()},
    }


def rows(options: Options, pairs: int, shortest: float) -> Iterator[Row]:
    """All rows that were asked for."""
    widths, horizons, batch = ((8,), (16,), 4) if options.quick else (WIDTHS, HORIZONS, BATCH)
    for name, dtype, width, horizon in product(_GATES, ("float64", "float32"), widths, horizons):
        if options.wants({"dtype": dtype, "width": width, "horizon": horizon}):
            yield measured(name, width, horizon, batch, dtype, pairs, shortest)
    for width, horizon, batch in () if options.quick else BY_ONEDNN:
        if options.wants({"dtype": "float32", "width": width, "horizon": horizon}):
            yield measured("lstm", width, horizon, batch, "float32", pairs, shortest)
