"""A deep residual stack of recurrent units: the architecture in which arXiv 2305.15947 compares learning rules.

An affine encoder brings the input to F features. Each layer is

    x <- x + mixing(unit(norm(x)))        with ``prenorm``, else        x <- norm(x + mixing(unit(x))),

where the unit is the layer's only memory: everything else acts on one step at a time. An affine readout, after a hidden
layer of rectified units where ``readout_width`` asks for one, answers at every step. With ``pooling`` it reads the mean
of the features up to the step, so that sequences of different lengths need no mask: what the model says at the last
step of a sequence is what it says of all of it.

Letters: see memsweep.models.unit; I inputs, O outputs, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from memsweep import registry
from memsweep.config.fields import setting
from memsweep.models.base import Part, Role, Signature, Weights, leading_shape
from memsweep.models.deep import DeepModel
from memsweep.models.unit import Unit
from memsweep.models.unit_lru import LRUUnit
from memsweep.registry import register_model

FULL_GLU, HALF_GLU1, HALF_GLU2, GELU, NO_MIXING = "full_glu", "half_glu1", "half_glu2", "gelu", "none"
LAYER_NORM, BATCH_NORM, NO_NORM = "layer", "batch", "none"
MEAN, RUNNING_MEAN, NO_POOLING = "mean", "running_mean", "none"


@register_model("residual_stack")
class ResidualStack(DeepModel):
    """Residual layers of recurrent units (LRU, RNN, GRU), with norms, gates, dropout and pooling."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Layers of one recurrent unit each, between an affine encoder and an affine readout."""

        width: int = setting(8, "size of the state of each layer's unit", at_least=1, at_most=1_000_000)
        features: int = setting(8, "size of what goes from layer to layer", at_least=1, at_most=1_000_000)
        layers: int = setting(1, "number of layers", at_least=1, at_most=1000)
        unit: Any = setting(doc="the recurrence of every layer", factory=LRUUnit.Config, registered="unit")
        mixing: str = setting(
            FULL_GLU,
            "what happens to a unit's answer a: full_glu, U gelu(a) sigmoid(V gelu(a)); half_glu1, gelu(a) "
            "sigmoid(V gelu(a)); half_glu2, a sigmoid(V gelu(a)); gelu; or none",
            choices=(FULL_GLU, HALF_GLU1, HALF_GLU2, GELU, NO_MIXING),
        )
        norm: str = setting(
            LAYER_NORM,
            "normalization in every layer: layer (over the features), batch (over batch and time) or none",
            choices=(LAYER_NORM, BATCH_NORM, NO_NORM),
        )
        prenorm: bool = setting(True, "normalize what a unit reads, instead of what its layer answers")
        residual: bool = setting(True, "add the input of a layer to its output")
        dropout: float = setting(
            0.0, "share of the features that a layer drops in training, the same at all steps", at_least=0.0, below=1.0
        )
        readout_width: int = setting(
            0, "size of a hidden layer of rectified units in the readout (0: none)", at_least=0, at_most=1_000_000
        )
        pooling: str = setting(
            NO_POOLING,
            "what the readout reads at a step: none (the features of the step), mean (their mean up to the step) or "
            "running_mean (the same value, but errors reach the step's own features alone, and whole: what a rule "
            "that goes forward in time can know)",
            choices=(NO_POOLING, MEAN, RUNNING_MEAN),
        )

        def problems(self) -> Iterable[str]:
            refused = registry.get(registry.UNIT, self.unit.name).refusal(self.unit, self.width, self.features)
            if refused is not None:
                yield refused

    @classmethod
    def roles(cls, config: Config) -> Mapping[str, Role]:
        roles = {
            "encoder_weight": Role(Part.ENCODER, ("feature", "input")),
            "encoder_bias": Role(Part.BIAS, ("feature",)),
        }
        unit = _unit(config)
        for layer in range(config.layers):
            found = dict(unit.roles())
            if config.norm != NO_NORM:
                found["norm_weight"] = Role(Part.GAIN, ("feature",))
                found["norm_bias"] = Role(Part.BIAS, ("feature",))
            for name in _mixes(config):
                found[f"{name}_weight"] = Role(Part.READOUT, ("feature", "feature"))
                found[f"{name}_bias"] = Role(Part.BIAS, ("feature",))
            roles |= {f"{name}_l{layer}": replace(role, layer=layer) for name, role in found.items()}
        if config.readout_width:
            roles["hidden_weight"] = Role(Part.READOUT, ("hidden", "feature"))
            roles["hidden_bias"] = Role(Part.BIAS, ("hidden",))
        read = "hidden" if config.readout_width else "feature"
        return roles | {
            "readout_weight": Role(Part.READOUT, ("output", read)),
            "readout_bias": Role(Part.BIAS, ("output",)),
        }

    @classmethod
    def initial(cls, config: Config, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Affine maps: normal with variance 1 / (size of what they read), cut off at two deviations, biases zero."""
        features = config.features
        weights = _affine("encoder", features, signature.inputs, rng)
        unit = _unit(config)
        for layer in range(config.layers):
            found = unit.initial(signature.horizon, rng)
            if config.norm != NO_NORM:
                found |= {"norm_weight": np.ones(features), "norm_bias": np.zeros(features)}
            for name in _mixes(config):
                found |= _affine(name, features, features, rng)
            weights |= {f"{name}_l{layer}": value for name, value in found.items()}
        read = features
        if config.readout_width:
            weights |= _affine("hidden", config.readout_width, features, rng)
            read = config.readout_width
        return weights | _affine("readout", signature.outputs, read, rng)

    @classmethod
    def rule_refusal(cls, config: Config) -> str | None:
        if config.pooling == MEAN:
            return "pooling mean sends errors to the features of earlier steps: use running_mean or none"
        if config.norm == BATCH_NORM:
            return "norm batch takes its statistics from all steps, later ones too: use norm layer or none"
        return None

    def configure(self, configs: Sequence[Config]) -> None:
        self.layer_unit = _unit(configs[0])

    def eigenvalues(self, weights: Weights) -> Tensor | None:
        """Of the units of all layers: ``[N..., layers x modes]``."""
        found = [self.layer_unit.eigenvalues(self._of_layer(weights, layer)) for layer in range(self.config.layers)]
        known = [values for values in found if values is not None]
        return torch.cat(known, -1) if known else None

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        leading = leading_shape(self, weights)
        flat = {name: value.flatten(0, len(leading) - 1) for name, value in weights.items()}
        x_NBTF = _mapped(flat, "encoder", inputs.unsqueeze(0))
        for layer in range(self.config.layers):
            x_NBTF = self._layer(self._of_layer(flat, layer), layer, x_NBTF)
        x_NBTF = self._pooled(self.recurrence.features(x_NBTF))
        if self.config.readout_width:
            x_NBTF = torch.relu(_mapped(flat, "hidden", x_NBTF))
        return _mapped(flat, "readout", x_NBTF).unflatten(0, leading)

    def _layer(self, weights: Weights, layer: int, x_NBTF: Tensor) -> Tensor:
        config, unit = self.config, self.layer_unit
        read = self._normed(weights, x_NBTF) if config.prenorm else x_NBTF
        states = self.recurrence.states(layer, unit, unit.parts(weights), read)
        answers = self._mixed(weights, unit.answers(weights, states, read))
        found = x_NBTF + answers if config.residual else answers
        return found if config.prenorm else self._normed(weights, found)

    def _normed(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        if self.config.norm == NO_NORM:
            return x_NBTF
        normal = functional.layer_norm(x_NBTF, x_NBTF.shape[-1:])
        return normal * weights["norm_weight"][:, None, None] + weights["norm_bias"][:, None, None]

    def _mixed(self, weights: Weights, a_NBTF: Tensor) -> Tensor:
        mixing = self.config.mixing
        if mixing == NO_MIXING:
            return a_NBTF
        bent = functional.gelu(a_NBTF, approximate="tanh")
        if mixing == GELU:
            return bent
        gate = torch.sigmoid(_mapped(weights, "gate", bent))
        into = {FULL_GLU: lambda: _mapped(weights, "mix", bent), HALF_GLU1: lambda: bent, HALF_GLU2: lambda: a_NBTF}
        return into[mixing]() * gate

    def _pooled(self, x_NBTF: Tensor) -> Tensor:
        if self.config.pooling == NO_POOLING:
            return x_NBTF
        steps = torch.arange(1, x_NBTF.shape[2] + 1, dtype=x_NBTF.dtype, device=x_NBTF.device)
        mean = x_NBTF.cumsum(2) / steps[:, None]
        return mean if self.config.pooling == MEAN else x_NBTF + (mean - x_NBTF).detach()

    def _of_layer(self, weights: Weights, layer: int) -> dict[str, Tensor]:
        end = f"_l{layer}"
        return {name.removesuffix(end): value for name, value in weights.items() if name.endswith(end)}


def _unit(config: ResidualStack.Config) -> Unit:
    found: Unit = registry.get(registry.UNIT, config.unit.name)(config.unit, config.width, config.features)
    return found


def _mixes(config: ResidualStack.Config) -> tuple[str, ...]:
    """Affine maps of the features in every layer."""
    return {FULL_GLU: ("mix", "gate"), HALF_GLU1: ("gate",), HALF_GLU2: ("gate",)}.get(config.mixing, ())


def _affine(name: str, outputs: int, inputs: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    drawn = _cut_normal((outputs, inputs), rng) / math.sqrt(inputs)
    return {f"{name}_weight": drawn, f"{name}_bias": np.zeros(outputs)}


def _cut_normal(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Normal numbers within two deviations, of variance 1 all the same: flax's default for dense layers."""
    from scipy.stats import truncnorm

    drawn: np.ndarray = truncnorm.ppf(rng.uniform(size=shape), -2.0, 2.0) / truncnorm.std(-2.0, 2.0)
    return drawn


def _mapped(weights: Weights, name: str, x_NBTF: Tensor) -> Tensor:
    product = (
        torch.einsum("nbtf,nof->nbto", x_NBTF, weights[f"{name}_weight"])
        if x_NBTF.shape[0] > 1
        else (torch.einsum("btf,nof->nbto", x_NBTF[0], weights[f"{name}_weight"]))
    )
    return product + weights[f"{name}_bias"][:, None, None]
