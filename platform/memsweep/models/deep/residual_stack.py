"""A deep residual stack of recurrent units: the architecture in which arXiv 2305.15947 compares learning rules.

An affine encoder brings the input to F features. Each layer is

    x <- x + mixing(unit(norm(x)))        with ``prenorm``, else        x <- norm(x + mixing(unit(x))),

where the unit is the layer's only memory: all other parts act on one step at a time. With ``units`` the layers have
units of several kinds, in turn. Without an encoder (``memsweep.models.deep.no_encoder``) the first layer is
mixing(unit(u)) of the input u, normalized where not ``prenorm``. An affine readout, after a hidden layer of rectified
units where ``readout_width`` asks for one, answers at every step. With ``pooling`` it reads the mean of the features up
to the step: the output at the last step of a sequence is the output for all of it, and lengths need no mask.

Dropout acts where the published code has it: on the input and on the output of a layer's gates, with one mask for all
steps of a sequence. The norm over a batch takes its statistics from batch and time in training, and keeps their running
means as weights (``memsweep.models.deep.around_unit``).

Letters: see memsweep.models.deep.unit; I inputs, O outputs, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.core.fields import setting
from memsweep.models.affine import balanced_as_a_whole
from memsweep.models.base import LinearModel, Part, Response, Role, Signature, Traits, Weights, flattened
from memsweep.models.deep.around_unit import (
    BATCH,
    FULL_GLU,
    LAYER,
    MIXINGS,
    NONE,
    NORMS,
    PLACES,
    Dropout,
    Norm,
    affine_initial,
    apply_gates,
    clashes,
    mixing_initial,
    mixing_roles,
    norm_initial,
    norm_roles,
)
from memsweep.models.deep.contract.stack import stack_problems
from memsweep.models.deep.fused_stack import CompiledStack, dropped_stack, drops, fused_outputs, knows
from memsweep.models.deep.no_encoder.compiled import compiled_without_encoder
from memsweep.models.deep.no_encoder.first_layer import (
    encoder_problems,
    first_unit,
    lacks_map,
    omits_encoder,
    roles_without_encoder,
    without_encoder,
)
from memsweep.models.deep.unit import (
    DeepModel,
    LayerUnit,
    Recurrence,
    Unit,
    begin_step_of,
    grows,
    has_layer_units,
    in_mode,
    kinds_of,
    refusals,
    statistics_of,
    still,
    unit_of_layer,
    units_at,
    units_of,
)
from memsweep.models.deep.unit_lru import LRUUnit
from memsweep.recurrence.layer import affine
from memsweep.registry import register_model

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

MEAN, RUNNING_MEAN, NO_POOLING = "mean", "running_mean", "none"


@register_model("residual_stack")
class ResidualStack(DeepModel, LinearModel):
    """Residual layers of one unit each (``memsweep list units``), with norms, gates, dropout and pooling.

    Linear where its unit is, without mixing, norm, pooling and hidden readout.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Layers of one recurrent unit each, between an affine encoder and an affine readout."""

        width: int = setting(8, "size of the state of each layer's unit", at_least=1, at_most=1_000_000)
        features: int = setting(8, "size of what goes from layer to layer", at_least=1, at_most=1_000_000)
        layers: int = setting(1, "number of layers", at_least=1, at_most=1000)
        unit: Any = setting(doc="the recurrence of every layer", factory=LRUUnit.Config, registered="unit")
        # written units; with this name no code of other stacks seems to read it, and their identities stay
        units_: tuple[Any, ...] | None = setting(
            None,
            "in place of unit: the recurrences of the layers, the first layer's first, in turn to the depth "
            "([gated_delta_net, gated_delta_net, gated_delta_net, attention]); null: every layer has unit",
            each_registered="unit",
        )
        encoder__: str = setting(  # written encoder; units mention encoder_
            "linear",
            "how the input comes to the first layer: linear (an affine map to the features) or none (its unit, a gru, "
            "lstm or slstm, reads the input itself; that layer has no norm before it and no residual around it)",
            choices=("linear", NONE),
        )
        mixing: str = setting(
            FULL_GLU,
            "what happens to a unit's answer a: full_glu, U gelu(a) sigmoid(V gelu(a)); half_glu1, gelu(a) "
            "sigmoid(V gelu(a)); half_glu2, a sigmoid(V gelu(a)); gelu; or none",
            choices=MIXINGS,
        )
        norm: str = setting(
            LAYER,
            "normalization in every layer: layer (over the features), batch (over batch and time, by running means "
            "once trained) or none",
            choices=NORMS,
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
            "running_mean (the same value, but in training errors reach the step's own features alone, and whole: what "
            "a rule that goes forward in time can know)",
            choices=(NO_POOLING, MEAN, RUNNING_MEAN),
        )

        def problems(self) -> Iterable[str]:
            yield from refusals(self)
            yield from self._problems_of_units()
            yield from encoder_problems(self)
            if self.dropout > 0 and self.mixing == NONE:
                yield (
                    f"dropout is {self.dropout:g}, but it acts in the mixing of a layer, and mixing is none: choose a "
                    "mixing, or dropout 0"
                )

        def _problems_of_units(self) -> Iterable[str]:
            if self.units_ is None:
                return
            if not self.units_:
                yield "units is empty: give a unit for each of the layers that repeat, or leave it out"
            if self.unit != LRUUnit.Config():
                yield f"units stands in place of unit, and unit is {self.unit.name}: leave one of them out"
            if len(self.units_) > self.layers:
                yield (
                    f"units has {len(self.units_)} entries, one for each layer in turn, but layers is {self.layers}: "
                    f"set layers to {len(self.units_)} or more"
                )

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        yield from super().problems(trial)
        config: Any = trial.model
        parts, known = set(), True
        for each, kind in kinds_of(config).items():
            yield from kind.problems(trial)
            if issubclass(kind, LayerUnit):  # its weights are known where its code runs
                known = False
                continue
            roles = kind(each, config.width, config.features).roles()
            yield from clashes(_around(config), each.name, roles)
            parts |= {role.part for role in roles.values()}
        if known:
            yield from still(trial, parts)

    @classmethod
    def problems_of_code(cls, trial: TrialConfig) -> Iterator[str]:
        config: Any = trial.model
        yield from stack_problems(cls, trial, _around(config))

    @classmethod
    def notes_of_code(cls, trial: TrialConfig, device: str) -> Iterator[str]:
        yield from super().notes_of_code(trial, device)
        for each, kind in kinds_of(trial.model).items():
            if issubclass(kind, LayerUnit):
                yield from kind.notes_of_code(each, trial)

    @classmethod
    def problems_of_states(cls, trial: TrialConfig) -> Iterator[str]:
        config: Any = trial.model
        for each, kind in kinds_of(config).items():
            if not issubclass(kind, LayerUnit) and grows(kind(each, config.width, config.features)):
                yield f"the states of the unit {each.name} grow with every step"

    @classmethod
    def roles(cls, config: Config) -> Mapping[str, Role]:
        roles = {
            "encoder_weight": Role(Part.ENCODER, ("feature", "input")),
            "encoder_bias": Role(Part.BIAS, ("feature",)),
        }
        unit = _unit(config)
        for layer in range(config.layers):
            if has_layer_units(config):
                unit = unit_of_layer(config, layer)
            layer_roles = dict(unit.roles()) | _around(config)
            roles |= {f"{name}_l{layer}": replace(role, layer=layer) for name, role in layer_roles.items()}
        if omits_encoder(config):
            roles = roles_without_encoder(config, roles)
        if config.readout_width:
            roles["hidden_weight"] = Role(Part.READOUT, ("hidden", "feature"))
            roles["hidden_bias"] = Role(Part.BIAS, ("hidden",))
        read = "hidden" if config.readout_width else "feature"
        return roles | {
            "readout_weight": Role(Part.READOUT, ("output", read)),
            "readout_bias": Role(Part.BIAS, ("output",)),
        }

    @classmethod
    def traits(cls, config: Config) -> Traits:
        chosen = (config.mixing, config.norm, config.pooling, config.readout_width)
        plain = chosen == (NONE, NONE, NO_POOLING, 0)
        if has_layer_units(config):
            return _traits_of_layers(config, plain)
        return Traits(
            linear=plain and bool(registry.get(registry.UNIT, config.unit.name).is_linear(config.unit)),
            whole_batch=config.norm == BATCH,
        )

    @classmethod
    def initial(cls, config: Config, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Units, norms and affine maps as their modules say; layer after layer from one generator."""
        features, unit = config.features, _unit(config)
        weights = affine_initial("encoder", features, signature.inputs, rng)
        for layer in range(config.layers):
            if has_layer_units(config):
                unit = unit_of_layer(config, layer)
            if omits_encoder(config):
                unit = unit_of_layer(config, layer) if layer else first_unit(config, signature.inputs)
            drawn = unit.initial(signature.horizon, rng) | norm_initial(config.norm, features)
            drawn |= mixing_initial(config.mixing, features, rng)
            weights |= {f"{name}_l{layer}": value for name, value in drawn.items()}
        if omits_encoder(config):
            weights = without_encoder(config, weights)
        if config.readout_width:
            weights |= affine_initial("hidden", config.readout_width, features, rng)
        return weights | affine_initial("readout", signature.outputs, config.readout_width or features, rng)

    @classmethod
    def rule_refusal(cls, config: Config) -> str | None:
        if has_layer_units(config):
            return "its layers have units of their own (model.units): rules that go forward in time know one unit"
        if config.pooling == MEAN:
            return "pooling mean sends errors to the features of earlier steps: use running_mean or none"
        if config.norm == BATCH:
            return "norm batch takes its statistics from all steps, later ones too: use norm layer or none"
        return None

    def configure(self, configs: Sequence[Config]) -> None:
        config = configs[0]
        self.layer_unit = _unit(config)
        self._norms = [Norm(config.norm) for _ in range(config.layers)]
        self._dropout = Dropout(config.dropout, PLACES * config.layers, config.features)
        if has_layer_units(config):
            self._units = units_at(config, self.signature.horizon)
        if omits_encoder(config):
            self._units = [first_unit(config, self.signature.inputs), *units_at(config, self.signature.horizon)[1:]]
            self._norms[0] = Norm(NONE if config.prenorm else config.norm)

    def start_step(self, seeds: Sequence[int], step: int) -> None:
        """Dropout's random numbers; before the first step a model drops nothing."""
        self._dropout.start_step(seeds, step)
        if has_layer_units(self.config):
            begin_step_of(self._units, seeds, step)

    def updated_statistics(self, weights: Weights) -> Mapping[str, Tensor]:
        """Running means and variances of the norms over a batch, and what a user's module keeps."""
        if has_layer_units(self.config):
            return _statistics_of_norms(self._norms, weights) | statistics_of(self._units)
        return {
            f"{name}_l{layer}": value
            for layer, each in enumerate(self._norms)
            for name, value in each.updated_statistics(_of_layer(weights, layer)).items()
        }

    def eigenvalues(self, weights: Weights) -> Tensor | None:
        """Of the units of all layers: ``[N..., layers x modes]``."""
        leading, flat = flattened(self, weights)
        if has_layer_units(self.config):
            return _eigenvalues_of(self._units, flat, leading)
        if omits_encoder(self.config):
            return _eigenvalues_of(self._units, flat, leading)
        by_layer = [self.layer_unit.eigenvalues(_of_layer(flat, layer)) for layer in range(self.config.layers)]
        known = [values.unflatten(0, leading) for values in by_layer if values is not None]
        return torch.cat(known, -1) if known else None

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        leading, flat = flattened(self, weights)
        if (kernel := self._compiled(inputs)) is not None:
            one_NS = torch.cat([flat[name].flatten(1) for name in self.weight_axes], 1)
            return fused_outputs(kernel, self.config, self.signature.outputs, one_NS, inputs).unflatten(0, leading)
        x_NBTF = _mapped(flat, "encoder", inputs.expand(math.prod(leading), *inputs.shape))
        for layer in range(self.config.layers):
            x_NBTF = self._layer(_of_layer(flat, layer), layer, x_NBTF)
        x_NBTF = self._pooled(self.recurrence.features(x_NBTF))
        if self.config.readout_width:
            x_NBTF = torch.relu(_mapped(flat, "hidden", x_NBTF))
        return _mapped(flat, "readout", x_NBTF).unflatten(0, leading)

    def squared_gradient(
        self, weights: Tensor, inputs: Tensor, targets: Tensor, squares: Tensor, live: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        kernel = self._compiled(inputs)
        if kernel is None:
            return None
        return kernel.squared_gradient(self.config, weights, inputs, targets, squares, live)

    def _compiled(self, inputs: Tensor) -> CompiledStack | None:
        """The compiled stack; None where torch computes it. Neither batch nor replicas decide it."""
        plain = type(self.recurrence) is Recurrence and inputs.is_cpu and not inputs.requires_grad
        if omits_encoder(self.config):
            dropout = self._dropout if self.training else None
            return compiled_without_encoder(self.config, inputs, dropout, self.first_row) if plain else None
        if drops(self.config):
            dropout = self._dropout if self.training else None
            return dropped_stack(self.config, inputs, dropout, self.first_row) if plain else None
        return CompiledStack.load(inputs.dtype) if plain and knows(self.config, inputs.shape[1]) else None

    def response(self, weights: Weights, horizon: int) -> Response:
        """Runs the stack on an impulse at each input, and on zeros for the drift."""
        inputs = self.signature.inputs
        impulses = weights["encoder_weight"].new_zeros(inputs + 1, horizon, inputs)
        impulses[:inputs, 0].fill_diagonal_(1.0)
        answers_NCOT = self.outputs(weights, impulses).transpose(-1, -2)
        drift_NOT = answers_NCOT[..., -1, :, :]
        # the stack is affine here: an impulse's own answer is what it adds to the answer to zeros
        kernel_NIOT = answers_NCOT[..., :-1, :, :] - drift_NOT.unsqueeze(-3)
        return Response(kernel=kernel_NIOT.transpose(-3, -2), drift=drift_NOT)

    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        """Every unit balanced, and |encoder| = |readout| (Frobenius): one scale runs through all layers."""
        balanced = balanced_as_a_whole(weights, ["encoder_weight"], ["encoder_bias"], ["readout_weight"])
        if has_layer_units(self.config):
            return balanced | _balanced_units(self._units, weights)
        for layer in range(self.config.layers):
            units = self.layer_unit.balanced(_of_layer(weights, layer))
            balanced |= {f"{name}_l{layer}": value for name, value in units.items()}
        return balanced

    def _layer(self, weights: Weights, layer: int, x_NBTF: Tensor) -> Tensor:
        config, unit, norm = self.config, self.layer_unit, self._norms[layer]
        if has_layer_units(config):
            unit = in_mode(self._units[layer], self.training)
        if omits_encoder(config, layer):
            unit = self._units[0]
        read = norm(weights, x_NBTF, self.training) if config.prenorm else x_NBTF
        answers = self.recurrence.answers(layer, unit, weights, read)
        answers = apply_gates(config.mixing, weights, answers, partial(self._dropped, layer))
        if omits_encoder(config, layer):
            return answers if config.prenorm else norm(weights, answers, self.training)
        sum_NBTF = x_NBTF + answers if config.residual else answers
        return sum_NBTF if config.prenorm else norm(weights, sum_NBTF, self.training)

    def _dropped(self, layer: int, x_NBTF: Tensor, place: int) -> Tensor:
        if not self.training:
            return x_NBTF
        return self._dropout.apply(x_NBTF, PLACES * layer + place, self.first_row)

    def _pooled(self, x_NBTF: Tensor) -> Tensor:
        if self.config.pooling == NO_POOLING:
            return x_NBTF
        mean = self.recurrence.average(x_NBTF)
        # the rule's gradient is for training: measurements, such as the worst perturbation, need the true one
        measured = type(self.recurrence) is Recurrence and not self.training
        return mean if self.config.pooling == MEAN or measured else x_NBTF + (mean - x_NBTF).detach()


def _of_layer(weights: Weights, layer: int) -> dict[str, Tensor]:
    """Weights of a layer, without the ends of their names."""
    end = f"_l{layer}"
    return {name.removesuffix(end): value for name, value in weights.items() if name.endswith(end)}


def _mapped(weights: Weights, name: str, x_NBTF: Tensor) -> Tensor:
    if lacks_map(weights, name):
        return x_NBTF
    return affine(x_NBTF, weights[f"{name}_weight"], weights[f"{name}_bias"])


def _around(config: ResidualStack.Config) -> dict[str, Role]:
    """Roles of the weights of a layer beside its unit's."""
    return {**norm_roles(config.norm), **mixing_roles(config.mixing)}


def _unit(config: ResidualStack.Config) -> Unit:
    unit: Unit = registry.get(registry.UNIT, config.unit.name)(config.unit, config.width, config.features)
    return unit


def _traits_of_layers(config: ResidualStack.Config, plain: bool) -> Traits:
    """A user's module sees a training batch at once, as in a loop of one's own."""
    kinds = {each: registry.get(registry.UNIT, each.name) for each in units_of(config)}
    foreign = any(issubclass(kind, LayerUnit) for kind in kinds.values())
    return Traits(
        linear=plain and all(kind.is_linear(each) for each, kind in kinds.items()),
        whole_batch=foreign or config.norm == BATCH,
        runs_longer=not foreign,
    )


def _statistics_of_norms(norms: Sequence[Norm], weights: Weights) -> dict[str, Tensor]:
    return {
        f"{name}_l{layer}": value
        for layer, norm in enumerate(norms)
        for name, value in norm.updated_statistics(_of_layer(weights, layer)).items()
    }


def _eigenvalues_of(units: Sequence[Unit], weights: Weights, leading: tuple[int, ...]) -> Tensor | None:
    by_layer = [unit.eigenvalues(_of_layer(weights, layer)) for layer, unit in enumerate(units)]
    known = [values.unflatten(0, leading) for values in by_layer if values is not None]
    return torch.cat(known, -1) if known else None


def _balanced_units(units: Sequence[Unit], weights: Weights) -> dict[str, Tensor]:
    return {
        f"{name}_l{layer}": value
        for layer, unit in enumerate(units)
        for name, value in unit.balanced(_of_layer(weights, layer)).items()
    }
