"""A recurrent layer against torch's own: ``torch.nn.GRU``, ``torch.nn.LSTM`` and ``torch.nn.RNN``.

Our units compute many models at once, and here one: a gated layer alone, with its gradients by weights and inputs. Then
whole models, torch's layers and a linear readout of one input and output: a step of training on a batch that lies
ready, with loss, gradient, clip and AdamW. Both sides have the same weights and data; states or losses, and gradients,
are compared first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor, nn

from benchmarks import harness
from benchmarks.harness import Options, Row
from benchmarks.published.loop import PublishedLoop, PublishedTraining
from benchmarks.steps.peers_jax import trial
from benchmarks.steps.product import Pack
from memsweep import registry
from memsweep.learning.loss.batch_sharding import ShardedBatch
from memsweep.streams import TRAIN, Stream

HORIZONS: Final = (100, 1000)
WIDTHS: Final = (64, 128)
BATCH: Final = 32
FEW: Final = tuple(product(("lstm", "gru"), (64, 128), (100,), (1, 4, 16)))
"""Units, widths, horizons and sequences of layers in float32 that would not fill a block of our kernel."""
BY_ONEDNN: Final = (("lstm", 256, 100, 1), ("lstm", 256, 100, 32), ("lstm", 512, 50, 32))
"""The same of LSTMs for which ours calls torch's."""
# torch's order of the gates, and the sign of each: its GRU calls the share of a state that stays what ours calls new
_GATES: Final[dict[str, dict[str, int]]] = {
    "gru": {"reset": 1, "update": -1, "candidate": 1},
    "lstm": {"input": 1, "forget": 1, "candidate": 1, "output": 1},
}
_KINDS: Final = {"encoder": "weight_ih_l0", "matrix": "weight_hh_l0", "bias": "bias_ih_l0"}
WHOLE: Final = tuple((name, *size) for name in ("gru", "lstm", "rnn") for size in ((16, 1), (16, 2), (64, 1), (128, 1)))
"""Layers, widths and depths of whole models: sequences of 100 steps, float32."""
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


class Plain(PublishedLoop):
    """torch's recurrent layers and a linear readout, in training by the published protocol.

    Args:
        named: the weights of one model of ours, which has the same layers.
        name: gru, lstm or rnn.
        layers: how many.
    """

    def __init__(self, named: dict[str, Tensor], name: str, layers: int) -> None:
        nn.Module.__init__(self)
        self.name, self.layers, width = name, layers, named["readout_weight"].shape[-1]
        modules: dict[str, Callable[..., nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}
        self.torchs = modules[name](1, width, layers, batch_first=True, dtype=named["readout_weight"].dtype)
        self.readout = nn.Linear(width, 1, dtype=named["readout_weight"].dtype)
        with torch.no_grad():
            for place, each in self.named_parameters():
                each.zero_().add_(self.ours(named).get(place, torch.zeros_like(each)))

    def forward(self, inputs_BTI: Tensor) -> Tensor:
        states_BTM: Tensor = self.torchs(inputs_BTI)[0]
        return self.readout(states_BTM)

    def ours(self, named: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights or gradients of our model under torch's names, without the second biases that ours does not have."""
        found = {f"readout.{kind}": named[f"readout_{kind}"] for kind in ("weight", "bias")}
        if self.name == "rnn":
            return found | {f"torchs.{key}": each for key, each in named.items() if "readout" not in key}
        for layer, (kind, place) in product(range(self.layers), _KINDS.items()):
            parts = [sign * named[f"{kind}_{gate}_l{layer}"] for gate, sign in _GATES[self.name].items()]
            found[f"torchs.{place.removesuffix('0')}{layer}"] = torch.cat(parts)
        for layer in range(self.layers if self.name == "gru" else 0):
            recalled = named[f"bias_recalled_l{layer}"]
            found[f"torchs.bias_hh_l{layer}"] = torch.cat([recalled.new_zeros(2 * len(recalled)), recalled])
        return found


def model_of(name: str, width: int, layers: int) -> dict[str, Any]:
    """Our model of torch's layers with a linear readout: without an encoder, and nothing between the layers."""
    if name == "rnn":
        return {"name": "vanilla_rnn", "width": width, "layers": layers}
    plain = {"encoder": "none", "mixing": "none", "norm": "none", "residual": False}
    return {"name": "residual_stack", "unit": name, "width": width, "features": width, "layers": layers, **plain}


def training_of(name: str, width: int, layers: int, horizon: int, batch: int) -> tuple[Pack, PublishedTraining]:
    """A model in training by both sides, whose losses and gradients were compared.

    Raises:
        AssertionError: they differ by more than roundings.
    """
    pack = Pack.of(trial(model_of(name, width, layers), horizon, batch, 1, "float32"))
    (learner,) = pack.learners
    named = {key: each[0] for key, each in learner.ensemble.layout.named(learner.weights).items()}
    peer = Plain(named, name, layers)
    drawn = pack.task.draw(Stream(pack.config.training.data_seed, TRAIN), 0, batch)
    weights_T = pack.task.weights().float()
    training = PublishedTraining(peer, drawn.inputs.float(), drawn.targets.float(), weights_T)
    data = ShardedBatch([(1.0, pack.task_loss.prepare(pack.drawn))])
    (loss, *_), gradients = learner.gradients(pack.task_loss, data)
    expected = peer.loss(*training.data)
    close = _TOLERANCES[torch.float32]
    torch.testing.assert_close(loss, expected.detach(), rtol=close, atol=0.0)
    ours = peer.ours({key: each[0] for key, each in learner.ensemble.layout.named(gradients).items()})
    theirs = torch.autograd.grad(expected, list(peer.parameters()))
    for (place, _), gradient in zip(peer.named_parameters(), theirs, strict=True):
        if place in ours:
            both = [
                each[-(width if "bias_hh" in place and name == "gru" else len(each)) :]
                for each in (ours[place], gradient)
            ]
            torch.testing.assert_close(*both, rtol=0.0, atol=10 * close * float(gradient.norm()), msg=place)
    return pack, training


def measured_whole(name: str, width: int, layers: int, sizes: tuple[int, int], pairs: int, shortest: float) -> Row:
    """One row of a whole model; weights: of ours, and of torch's with its second biases."""
    pack, training = training_of(name, width, layers, *sizes)
    times = harness.alternate({"ours": pack.step, "peer": training.step}, pairs=pairs, shortest=shortest)
    pack.check()
    own = pack.learners[0].ensemble.layout.named(pack.learners[0].weights).values()
    return {
        **{"peer": f"torch.nn.{name.upper()} ({layers}) and Linear", "dtype": "float32", "width": width},
        **{"horizon": sizes[0], "sequences": sizes[1], "layers": layers},
        "ratio": harness.ratio(times["peer"], times["ours"]),
        **{f"{side}_milliseconds": 1e3 * harness.median(each) for side, each in times.items()},
        "weights": sum(each[0].numel() for each in own),
        "peer_weights": sum(each.numel() for each in training.loop.parameters()),
    }


def rows(options: Options, pairs: int, shortest: float) -> Iterator[Row]:
    """All rows that were asked for."""
    widths, horizons, batch = ((8,), (16,), 4) if options.quick else (WIDTHS, HORIZONS, BATCH)
    for name, dtype, width, horizon in product(_GATES, ("float64", "float32"), widths, horizons):
        if options.wants({"dtype": dtype, "width": width, "horizon": horizon}):
            yield measured(name, width, horizon, batch, dtype, pairs, shortest)
    for name, width, horizon, batch in () if options.quick else (*FEW, *BY_ONEDNN):
        if options.wants({"dtype": "float32", "width": width, "horizon": horizon}):
            yield measured(name, width, horizon, batch, "float32", pairs, shortest)
    for name, width, layers in (("lstm", 8, 1), ("gru", 8, 2)) if options.quick else WHOLE:
        sizes = (16, 4) if options.quick else (HORIZONS[0], BATCH)
        if options.wants({"dtype": "float32", "width": width, "horizon": sizes[0], "layers": layers}):
            yield measured_whole(name, width, layers, sizes, pairs, shortest)
