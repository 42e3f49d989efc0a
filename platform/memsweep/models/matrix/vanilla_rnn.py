"""The vanilla RNN (Elman network): torch.nn.RNN with a linear readout, for all replicas at once.

h_t = sigma(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh),   h_{-1} = 0,   y_t = c h_t + d

Layers stand on each other: the states of one are the inputs of the next, and the readout reads the last. With
``bidirectional``, every layer has a second set of weights (``_reverse``) that runs from the last step to the first,
and its states are appended to the others; such a model is not causal. Recurrent weights have the names, shapes and
meaning of torch.nn.RNN's, so that either loads the other's state_dict, but for readout_weight and readout_bias.

Nothing keeps W_hh in a class of stable matrices: this model is the reference of the reparameterized ones.

Letters: see memsweep.models.base; F features of a layer's input (inputs, or the states of the layer below).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models import initialization
from memsweep.models.affine import balanced_as_a_whole, driven_response
from memsweep.models.base import LayerModel, Part, Response, Role, Signature, Traits, Weights, flattened, leading_shape
from memsweep.models.orthogonal_maps import random_symmetric
from memsweep.models.spectrum import eigenvalues
from memsweep.recurrence.layer import Layer
from memsweep.recurrence.scan import scan
from memsweep.registry import register_model
from memsweep.streams import Stream


@register_model("vanilla_rnn")
class VanillaRNN(LayerModel):
    """Elman network with the semantics of torch.nn.RNN; linear with one causal layer of the activation ``linear``."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """A fully connected recurrence (torch.nn.RNN) with a linear readout of the last layer's states."""

        width: int = setting(8, "hidden size of every layer, in either direction", at_least=1, at_most=10_000)
        activation: str = setting(
            "tanh",
            "activation inside the recurrence: tanh or relu as torch.nn.RNN has them, linear or hardtanh for studies "
            "of memory",
            choices=("tanh", "relu", "linear", "hardtanh"),
        )
        layers: int = setting(1, "layers, each reading the states of the one below", at_least=1, at_most=100)
        dropout: float = setting(
            0.0, "share of a layer's states that the next layer does not see in training", at_least=0.0, below=1.0
        )
        bidirectional: bool = setting(
            False, "run a second set of weights backward through time, too; the model is then not causal"
        )
        initialization: str = setting(
            initialization.SPREAD,
            "initial weights: spread (symmetric recurrent matrices in a random orthogonal basis, their rates "
            "log-uniform between 1/horizon and 1 per step) or published (torch.nn.RNN's and torch.nn.Linear's own: "
            "uniform within 1/sqrt(size of the states))",
            choices=initialization.CHOICES,
        )

        def problems(self) -> Iterable[str]:
            if self.dropout > 0 and self.layers == 1:
                yield (
                    f"dropout is {self.dropout:g}, but it acts between layers, and layers is 1: use 2 or more layers, "
                    "or dropout 0"
                )

    @classmethod
    def roles(cls, config: Config) -> Mapping[str, Role]:
        roles: dict[str, Role] = {}
        for layer in range(config.layers):
            below = "state" if layer else "input"
            for direction in _directions(config):
                roles |= {
                    f"weight_ih_l{layer}{direction}": Role(Part.ENCODER, ("width", below)),
                    f"weight_hh_l{layer}{direction}": Role(Part.RECURRENT, ("width", "width")),
                    f"bias_ih_l{layer}{direction}": Role(Part.BIAS, ("width",)),
                    f"bias_hh_l{layer}{direction}": Role(Part.BIAS, ("width",)),
                }
        return roles | {
            "readout_weight": Role(Part.READOUT, ("output", "state")),
            "readout_bias": Role(Part.BIAS, ("output",)),
        }

    @classmethod
    def traits(cls, config: Config) -> Traits:
        layer = config.layers == 1 and not config.bidirectional
        return Traits(
            linear=layer and config.activation == "linear",
            layer=layer,
            carries_states=layer,
            whole_batch=bool(config.dropout),  # its random numbers are drawn for all states of a call at once
        )

    @classmethod
    def initial(cls, config: Config, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """See the field ``initialization``; with ``spread`` biases are zero, and all but W_hh is normal."""
        states = config.width * len(_directions(config))
        weights: dict[str, np.ndarray] = {}
        for layer in range(config.layers):
            for direction in _directions(config):
                drawn = _initial_layer(config, layer, signature, rng)
                weights |= {f"{name}_l{layer}{direction}": value for name, value in drawn.items()}
        readout = initialization.encoder_and_readout(config.initialization, states, signature, rng)
        return weights | {name: readout[name] for name in ("readout_weight", "readout_bias")}

    def configure(self, configs: Sequence[Config]) -> None:
        self._generators: list[np.random.Generator] = []

    def start_step(self, seeds: Sequence[int], step: int) -> None:
        """Dropout's random numbers; before the first step a model drops nothing."""
        self._generators = [Stream(seed, "dropout").generator(step) for seed in seeds] if self.config.dropout else []

    def eigenvalues(self, weights: Weights) -> Tensor:
        """Of W_hh of all layers and directions, complex: the recurrence linearized at state 0."""
        names = [name for name in self.roles(self.config) if name.startswith("weight_hh")]
        return torch.cat([eigenvalues(weights[name]) for name in names], -1)

    def layer(self, weights: Weights) -> Layer:
        flat = len(leading_shape(self, weights)) - 1
        return Layer(
            encoder=weights["weight_ih_l0"].flatten(0, flat),
            # torch.nn.RNN has two biases, of which only the sum acts
            bias=(weights["bias_ih_l0"] + weights["bias_hh_l0"]).flatten(0, flat),
            matrix=weights["weight_hh_l0"].flatten(0, flat),
            readout=weights["readout_weight"].flatten(0, flat),
            offset=weights["readout_bias"].flatten(0, flat),
            activation=self.config.activation,
        )

    def outputs(self, weights: Weights, inputs: Tensor, live: Tensor | None = None) -> Tensor:
        if self.traits(self.config).layer:
            return super().outputs(weights, inputs, live)
        leading, flat = flattened(self, weights)
        x_NBTF = inputs.expand(math.prod(leading), *inputs.shape)
        for layer in range(self.config.layers):
            if layer:
                x_NBTF = self._dropped(x_NBTF, copies=math.prod(leading[1:]))
            states = [self._states(flat, f"l{layer}{direction}", x_NBTF) for direction in _directions(self.config)]
            x_NBTF = torch.cat(states, -1) if len(states) > 1 else states[0]
        answers_NBTO = torch.einsum("nbtf,nof->nbto", x_NBTF, flat["readout_weight"])
        return (answers_NBTO + flat["readout_bias"][:, None, None]).unflatten(0, leading)

    def outputs_from(self, weights: Weights, inputs: Tensor, states: Tensor | None) -> tuple[Tensor, Tensor]:
        leading, layer = leading_shape(self, weights), self.layer(weights)
        drive_NBTM = torch.einsum("nmi,bti->nbtm", layer.encoder, inputs) + layer.bias[:, None, None]
        if states is not None:  # what the recurrence makes of them is a part of the first step's drive
            echo_NBM = states.flatten(0, len(leading) - 1) @ layer.matrix.mT
            drive_NBTM = torch.cat([drive_NBTM[:, :, :1] + echo_NBM.unsqueeze(2), drive_NBTM[:, :, 1:]], 2)
        states_NBTM = scan(drive_NBTM, layer.matrix, self.config.activation, leak=0.0)
        answers_NBTO = torch.einsum("nbtm,nom->nbto", states_NBTM, layer.readout) + layer.offset[:, None, None]
        last_NBM = states_NBTM[:, :, -1].clone()  # a view would keep the states of all steps alive
        return answers_NBTO.unflatten(0, leading), last_NBM.unflatten(0, leading)

    def _states(self, weights: Weights, place: str, x_NBTF: Tensor) -> Tensor:
        """States of one layer in one direction: ``[N, B, T, M]``, in the order of time."""
        bias_NM = weights[f"bias_ih_{place}"] + weights[f"bias_hh_{place}"]
        drive_NBTM = torch.einsum("nmf,nbtf->nbtm", weights[f"weight_ih_{place}"], x_NBTF) + bias_NM[:, None, None]
        recurrent_NMM = weights[f"weight_hh_{place}"]
        # the other direction is the same recurrence on the reversed sequence, turned back
        if place.endswith(_REVERSE):
            return scan(drive_NBTM.flip(2), recurrent_NMM, self.config.activation, leak=0.0).flip(2)
        return scan(drive_NBTM, recurrent_NMM, self.config.activation, leak=0.0)

    def _dropped(self, x_NBTF: Tensor, copies: int) -> Tensor:
        """States with some of them zero and the rest larger in turn; the copies of a replica share its choice."""
        if not self.training or not self._generators:
            return x_NBTF
        keep, shape = 1.0 - self.config.dropout, x_NBTF.shape[1:]
        kept = torch.from_numpy(np.stack([numbers.random(shape) < keep for numbers in self._generators]))
        scale = (kept.to(x_NBTF) / keep).repeat_interleave(copies, 0)
        return x_NBTF * scale

    def response(self, weights: Weights, horizon: int) -> Response:
        return driven_response(
            weights["weight_hh_l0"],
            weights["weight_ih_l0"],
            weights["bias_ih_l0"] + weights["bias_hh_l0"],
            weights["readout_weight"],
            weights["readout_bias"],
            horizon,
        )

    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        """|W_ih| = |c| (Frobenius), by one scale for all units."""
        return balanced_as_a_whole(weights, ["weight_ih_l0"], ["bias_ih_l0", "bias_hh_l0"], ["readout_weight"])


_REVERSE = "_reverse"


def _directions(config: VanillaRNN.Config) -> tuple[str, ...]:
    """Ends of the names of each direction's weights."""
    return ("", _REVERSE) if config.bidirectional else ("",)


def _initial_layer(
    config: VanillaRNN.Config, layer: int, signature: Signature, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Weights of one layer in one direction, by torch.nn.RNN's names without their ends."""
    width = config.width
    features = width * len(_directions(config)) if layer else signature.inputs
    if config.initialization == initialization.PUBLISHED:
        near = 1.0 / math.sqrt(width)
        shapes = {"weight_ih": (width, features), "weight_hh": (width, width), "bias_ih": (width,), "bias_hh": (width,)}
        return {name: rng.uniform(-near, near, shape) for name, shape in shapes.items()}
    return {
        "weight_ih": rng.standard_normal((width, features)) / math.sqrt(features if layer else width),
        "weight_hh": random_symmetric(np.exp(-initialization.spread_rates(width, signature.horizon, rng)), rng),
        "bias_ih": np.zeros(width),
        "bias_hh": np.zeros(width),
    }
