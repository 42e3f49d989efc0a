"""The contract of every model."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep import registry
from memsweep.learning.ensemble.flat_layout import bucket, slots
from memsweep.learning.ensemble.replicas import Ensemble, Replica, build
from memsweep.models.base import LinearModel, Model, Part, Role, Signature, Traits, as_linear
from memsweep.streams import Stream
from memsweep.testing.checks import differing, equal, finite, of_generator, plain_config, same


class ModelSuite:
    """Inherit and set ``model``; the default Config is tested, or the one in ``config``.

    Attributes:
        model: registered name.
        config: a Config to test instead of the default one.
        signature: sizes of the inputs and outputs that the model is tested with.
        causal: False for a config that is meant to see the future.
        forgets: False for a linear config that may start with eigenvalues on the unit circle or beyond.
        steps_alike: False for a config whose steps depend on their number, so that a sequence cut in two is another.
    """

    model: str
    config: Any = None
    signature = Signature(inputs=1, outputs=1, horizon=12)
    causal = True
    forgets = True
    steps_alike = True

    def model_class(self) -> type[Model]:
        model: type[Model] = registry.get(registry.MODEL, self.model)
        return model

    def model_config(self) -> Any:
        return self.config if self.config is not None else self.model_class().Config()

    def traits(self) -> Traits:
        return self.model_class().traits(self.model_config())

    def roles(self) -> Mapping[str, Role]:
        return self.model_class().roles(self.model_config())

    def build(self, seed: int = 0) -> Model:
        model = self.model_class()(self.model_config(), self.signature, np.random.default_rng(seed))
        with torch.no_grad():  # initial biases are often zero, and zeros hide mistakes
            for name, weight in model.named_parameters():
                if "bias" in name:
                    weight.add_(0.1)
        return model.eval()

    def inputs(self, batch: int = 3) -> Tensor:
        rng = np.random.default_rng(7)
        return torch.from_numpy(rng.standard_normal((batch, self.signature.horizon, self.signature.inputs)))

    def test_config_is_documented_and_plain(self) -> None:
        config = self.model_config()
        plain_config(config)
        assert config.width >= 1, f"width: expected at least 1, got {config.width}"

    def test_every_weight_has_a_role(self) -> None:
        weights = dict(self.build().named_parameters())
        roles = self.roles()
        equal("names of the weights (roles says what is expected)", set(weights), set(roles))
        for name, weight in weights.items():
            equal(f"axes of {name} of shape {[*weight.shape]} (by its ndim)", len(roles[name].axes), weight.ndim)

    def test_shape(self) -> None:
        outputs = self.build()(self.inputs())
        equal("shape of the outputs", outputs.shape, (3, self.signature.horizon, self.signature.outputs))
        finite("outputs", outputs)

    def test_causality(self) -> None:
        model, inputs = self.build(), self.inputs()
        changed = inputs.clone()
        changed[:, 7:] += 1.0
        before, after = model(inputs), model(changed)
        equal(
            "outputs before step 7 stay when later inputs change (expected: causal)",
            torch.equal(before[:, :7], after[:, :7]),
            self.causal,
        )
        differing("outputs from step 7 on, whose inputs are others", after[:, 7:], before[:, 7:])

    def test_sequences_of_a_batch_do_not_mix(self) -> None:
        model, inputs = self.build(), self.inputs()
        same(
            "outputs of a sequence beside others, expected as alone",
            model(inputs)[1:2],
            model(inputs[1:2]),
            rtol=1e-12,
            atol=1e-12,
        )

    def test_carried_states_go_on_where_a_sequence_was_cut(self) -> None:
        model, inputs = self.build(), self.inputs()
        if not self.traits().carries_states:
            return
        weights = stacked(model)
        whole, last = model.outputs_from(weights, inputs, None)
        same("outputs from no states", whole, model.outputs(weights, inputs), rtol=1e-10, atol=1e-12)
        before, states = model.outputs_from(weights, inputs[:, :5], None)
        after, end = model.outputs_from(weights, inputs[:, 5:], states)
        same("outputs before the cut", before, whole[:, :, :5], rtol=1e-10, atol=1e-12)
        if self.steps_alike:
            same("outputs behind the cut", after, whole[:, :, 5:], rtol=1e-10, atol=1e-12)
            same("states at the end", end, last, rtol=1e-10, atol=1e-12)
        restarted, _ = model.outputs_from(weights, inputs[:, 5:], torch.zeros_like(states))
        differing("outputs behind a cut, from carried states and from zero", after, restarted)
        same("outputs from states of zero", restarted, model.outputs(weights, inputs[:, 5:]), rtol=1e-10, atol=1e-12)

    def test_gradients_are_finite_and_reach_every_weight(self) -> None:
        model = self.build()
        model(self.inputs()).square().sum().backward()
        roles = self.roles()
        for name, weight in model.named_parameters():
            if roles[name].part is Part.STATISTIC:
                assert weight.grad is None, f"a gradient reaches the statistic {name}"
                continue
            assert weight.grad is not None, f"no gradient reaches {name}"
            assert torch.isfinite(weight.grad).all(), f"the gradient of {name} is not finite"

    def test_saved_and_loaded(self) -> None:
        model, other, file = self.build(0), self.build(1), io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        same(
            "outputs of saved weights, expected as of loaded ones",
            model(self.inputs()),
            other(self.inputs()),
            rtol=0,
            atol=0,
        )

    def test_initial_weights_are_a_function_of_the_generator(self) -> None:
        first, again, other = (
            self.model_class().initial(self.model_config(), self.signature, np.random.default_rng(seed))
            for seed in (0, 0, 1)
        )
        of_generator(first, again, other)

    def ensembles(self, configs: Sequence[Any]) -> list[Ensemble]:
        """A replica of each config, seeds 0, 1, ...: at fixed shapes where the model takes company."""
        replicas = [Replica(0, config, seed, 0.01) for seed, config in enumerate(configs)]
        rows = slots if self.traits().pack_fields else None
        ensembles = build(self.model_class(), replicas, self.signature, torch.float64, rows)
        for ensemble in ensembles:
            ensemble.model.eval()
        return ensembles

    def test_a_replica_of_an_ensemble_equals_the_model_alone(self) -> None:
        config, model_class = self.model_config(), self.model_class()
        replicas = [Replica(0, config, seed, 0.01) for seed in range(3)]
        (ensemble,) = build(model_class, replicas, self.signature, torch.float64, None)
        weights = ensemble.layout.named(ensemble.initial)
        together = ensemble.model.eval().outputs(weights, self.inputs())
        for row in range(3):
            alone = model_class(config, self.signature)
            alone.load_state_dict({name: weight[row] for name, weight in weights.items()})
            same(
                "outputs of a replica of an ensemble, expected as of the model alone",
                together[row],
                alone.eval()(self.inputs()),
                rtol=1e-10,
                atol=1e-12,
            )

    def test_copies_of_a_replica_answer_with_their_own_weights(self) -> None:
        (ensemble, *_) = self.ensembles([self.model_config()] * 2)
        changed = ensemble.initial + 0.01 * ensemble.exists
        copies = torch.stack([ensemble.initial, changed], 1)
        together = ensemble.model.outputs(ensemble.layout.named(copies), self.inputs())
        for copy, weights in enumerate((ensemble.initial, changed)):
            alone = ensemble.model.outputs(ensemble.layout.named(weights), self.inputs())
            same("outputs of a copy, expected as alone", together[:, copy], alone, rtol=1e-10, atol=1e-12)

    def relatives(self) -> list[Any]:
        """Configs that may share an ensemble with the tested one: other widths, every parameterization."""
        config = self.model_config()
        packable = self.traits().pack_fields
        relatives = [config]
        if "width" in packable:
            relatives += [dataclasses.replace(config, width=width) for width in (1, config.width + 1)]
        if "parameterization" in packable:
            for name in registry.names(registry.PARAMETERIZATION):
                part = registry.get(registry.PARAMETERIZATION, name).Config()
                relatives.append(dataclasses.replace(config, parameterization=part))
        return relatives

    def test_an_ensemble_of_relatives_equals_each_alone(self) -> None:
        for ensemble in self.ensembles(self.relatives()):
            weights = ensemble.layout.named(ensemble.initial)
            linear = as_linear(ensemble.model)
            together = linear.response(weights, self.signature.horizon) if linear else None
            outputs = ensemble.model.outputs(weights, self.inputs())
            for row, replica in enumerate(ensemble.replicas):
                rng = Stream(replica.seed, "initial weights").generator()
                alone = self.model_class()(replica.model, self.signature, rng).eval()
                # nan where a model has no states of the size that its normalization asks for
                same(
                    "outputs of a replica beside relatives, expected as alone",
                    outputs[row],
                    alone(self.inputs()),
                    rtol=1e-10,
                    atol=1e-12,
                    equal_nan=True,
                )
                if together:
                    own = self.response(alone, stacked(alone))[0]
                    same(
                        "impulse response of a replica beside relatives, expected as alone",
                        together.kernel[row],
                        own,
                        rtol=1e-10,
                        atol=1e-12,
                        equal_nan=True,
                    )

    def test_company_does_not_change_a_bit(self) -> None:
        """A replica alone at the fixed shapes of an ensemble, and in the middle of relatives."""
        config = self.model_config()
        if not self.traits().pack_fields:
            return  # such a model never has company
        relatives = [other for other in self.relatives() if bucket(other.width) == bucket(config.width)]
        (company,) = self.ensembles([*relatives, config])
        last = Replica(0, config, len(relatives), 0.01)
        (alone,) = build(self.model_class(), [last], self.signature, torch.float64, slots)
        alone.model.eval()
        result = []
        for ensemble, row in ((company, len(relatives)), (alone, 0)):
            flat = ensemble.initial.clone().requires_grad_()
            weights = ensemble.layout.named(flat)
            linear = as_linear(ensemble.model)
            answers = ensemble.model.outputs(weights, self.inputs())
            kernel = linear.response(weights, 16).kernel if linear else answers
            (gradient,) = torch.autograd.grad((answers.square().mean() + kernel.square().mean()), flat)
            result.append((answers[row], kernel[row], gradient[row]))
        for together, by_itself in zip(*result, strict=True):
            same("bits of a replica in company, expected as alone", together, by_itself)

    def response(self, model: Model, weights: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Kernel and drift of the one replica of a linear model."""
        assert isinstance(model, LinearModel), f"traits says linear: expected a LinearModel, got {type(model).__name__}"
        response = model.response(weights, self.signature.horizon)
        return response.kernel[0], response.drift[0]

    def test_balancing_changes_the_gauge_and_nothing_else(self) -> None:
        model = self.build()
        linear = as_linear(model)
        if linear is None:
            return
        weights = stacked(model)
        balanced = linear.balanced(weights)
        for before, after in zip(self.response(model, weights), self.response(model, balanced), strict=True):
            same("impulse response before balancing, expected as after it", before, after, rtol=1e-10, atol=1e-12)
        parts = (Part.ENCODER, Part.READOUT)
        encoder, readout = (self.squares(balanced, part) for part in parts)
        same(
            "squares of the encoder after balancing, expected as of the readout",
            encoder,
            readout,
            rtol=1e-10,
            atol=1e-12,
        )
        if self.traits().separate_modes:
            encoder, readout = (self.squares_by_mode(model.modal(balanced), part) for part in parts)
            same(
                "squares of the encoder after balancing, expected as of the readout",
                encoder,
                readout,
                rtol=1e-10,
                atol=1e-12,
            )

    def squares(self, weights: Mapping[str, Tensor], part: Part) -> Tensor:
        """Sum of squares of all weights of one part."""
        names = [name for name, role in self.roles().items() if role.part is part]
        return torch.stack([weights[name].square().sum() for name in names]).sum()

    def squares_by_mode(self, weights: Mapping[str, Tensor], part: Part) -> Tensor:
        """The same for each mode: ``[M]``."""
        result = []
        for name, role in self.roles().items():
            if role.part is part:
                result.append(weights[name][0].movedim(role.axes.index("width"), 0).flatten(1).square().sum(-1))
        return torch.stack(result).sum(0)

    def test_modes_are_a_change_of_basis(self) -> None:
        """A model in the basis of its modes and back is the same model."""
        model = self.build()
        if not self.traits().separate_modes:
            return
        weights = stacked(model)
        back = model.modal(model.modal(weights), inverse=True)
        for name, weight in weights.items():
            same("weights in the basis of modes and back", back[name], weight, rtol=1e-10, atol=1e-12)

    def test_eigenvalues_tell_how_a_linear_model_forgets(self) -> None:
        """The late response shrinks by the largest of them per step, or faster where no weight reaches its mode."""
        model = self.build()
        linear = as_linear(model)
        eigenvalues = None if linear is None else linear.eigenvalues(stacked(model))
        if linear is None or eigenvalues is None or not self.forgets:
            return
        largest = float(eigenvalues.abs().max())
        assert largest < 1.0, f"largest eigenvalue: expected below 1, got {largest:g}; forgets = False allows it"
        lags = round(20.0 / -np.log(largest))
        sizes = linear.response(stacked(model), 2 * lags).kernel.abs()
        late = float((sizes[..., lags:].amax(-1) / sizes[..., :lags].amax(-1)).nan_to_num().max())
        assert late <= 1e-3, (
            f"response from lag {lags} on, by the largest eigenvalue {largest:g}: expected at most 0.001 of the one "
            f"before, got {late:.2g}"
        )

    def test_a_linear_model_is_its_response(self) -> None:
        model = self.build()
        if as_linear(model) is None:
            return
        kernel, drift = self.response(model, stacked(model))
        inputs = self.inputs()
        expected = drift.T.expand(inputs.shape[0], -1, -1).clone()
        for lag in range(self.signature.horizon):
            past = inputs[:, : self.signature.horizon - lag]
            expected[:, lag:] += past @ kernel[:, :, lag].T
        same("outputs of a linear model, expected from its response", model(inputs), expected, rtol=1e-10, atol=1e-12)


def stacked(model: Model) -> dict[str, Tensor]:
    """The weights of one model as a stack of one, without gradients."""
    return {name: weight.detach().unsqueeze(0) for name, weight in model.named_parameters()}
