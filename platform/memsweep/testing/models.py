"""What every model must do."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.canonical import to_dict
from memsweep.learning.ensemble import Replica, build
from memsweep.learning.streams import Stream
from memsweep.models.base import LinearModel, Model, Part, Signature


class ModelSuite:
    """Inherit and set ``model``; the default Config is tested, or the one in ``config``.

    Attributes:
        model: registered name.
        config: a Config to test instead of the default one.
        signature: sizes of the inputs and outputs that the model is tested with.
    """

    model: str
    config: Any = None
    signature = Signature(inputs=1, outputs=1, horizon=12)

    def model_class(self) -> type[Model]:
        found: type[Model] = registry.get(registry.MODEL, self.model)
        return found

    def model_config(self) -> Any:
        return self.config if self.config is not None else self.model_class().Config()

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
        assert all(field.metadata.get("doc") for field in dataclasses.fields(config))
        assert config.width >= 1
        json.dumps(to_dict(config), allow_nan=False)

    def test_every_weight_has_a_role(self) -> None:
        weights = dict(self.build().named_parameters())
        roles = self.model_class().roles
        assert set(weights) == set(roles)
        assert all(len(roles[name].axes) == weight.ndim for name, weight in weights.items())

    def test_shape(self) -> None:
        outputs = self.build()(self.inputs())
        assert outputs.shape == (3, self.signature.horizon, self.signature.outputs)
        assert torch.isfinite(outputs).all()

    def test_causality(self) -> None:
        model, inputs = self.build(), self.inputs()
        changed = inputs.clone()
        changed[:, 7:] += 1.0
        before, after = model(inputs), model(changed)
        torch.testing.assert_close(before[:, :7], after[:, :7], rtol=0, atol=0)
        assert not torch.allclose(before[:, 7:], after[:, 7:])

    def test_sequences_of_a_batch_do_not_mix(self) -> None:
        model, inputs = self.build(), self.inputs()
        torch.testing.assert_close(model(inputs)[1:2], model(inputs[1:2]), rtol=1e-12, atol=1e-12)

    def test_gradients_are_finite_and_reach_every_weight(self) -> None:
        model = self.build()
        model(self.inputs()).square().sum().backward()
        for name, weight in model.named_parameters():
            assert weight.grad is not None, f"no gradient reaches {name}"
            assert torch.isfinite(weight.grad).all(), f"the gradient of {name} is not finite"

    def test_saved_and_loaded(self) -> None:
        model, other, file = self.build(0), self.build(1), io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        torch.testing.assert_close(model(self.inputs()), other(self.inputs()), rtol=0, atol=0)

    def test_initial_weights_are_a_function_of_the_generator(self) -> None:
        first, again, other = (
            self.model_class().initial(self.model_config(), self.signature, np.random.default_rng(seed))
            for seed in (0, 0, 1)
        )
        assert all(np.array_equal(first[name], again[name]) for name in first)
        assert any(not np.array_equal(first[name], other[name]) for name in first)

    def test_a_replica_of_an_ensemble_equals_the_model_alone(self) -> None:
        config, model_class = self.model_config(), self.model_class()
        replicas = [Replica(0, config, seed, 0.01) for seed in range(3)]
        (ensemble,) = build(model_class, replicas, self.signature, torch.float64, stackable=False)
        weights = ensemble.layout.named(ensemble.initial)
        together = ensemble.model.outputs(weights, self.inputs())
        for row in range(3):
            alone = model_class(config, self.signature)
            alone.load_state_dict({name: weight[row] for name, weight in weights.items()})
            torch.testing.assert_close(together[row], alone.eval()(self.inputs()), rtol=1e-10, atol=1e-12)

    def relatives(self) -> list[Any]:
        """Configs that may share an ensemble with the tested one: other widths, every parameterization."""
        config, packable = self.model_config(), self.model_class().pack_fields
        found = [config]
        if "width" in packable:
            found += [dataclasses.replace(config, width=width) for width in (1, config.width + 1)]
        if "parameterization" in packable:
            for name in registry.names(registry.PARAMETERIZATION):
                part = registry.get(registry.PARAMETERIZATION, name).Config()
                found.append(dataclasses.replace(config, parameterization=part))
        return found

    def test_an_ensemble_of_relatives_equals_each_alone(self) -> None:
        model_class = self.model_class()
        if not issubclass(model_class, LinearModel):
            return
        horizon = self.signature.horizon
        replicas = [Replica(0, config, seed, 0.01) for seed, config in enumerate(self.relatives())]
        for ensemble in build(model_class, replicas, self.signature, torch.float64, stackable=True):
            assert isinstance(ensemble.model, LinearModel)
            together = ensemble.model.response(ensemble.layout.named(ensemble.initial), horizon)
            for row, replica in enumerate(ensemble.replicas):
                rng = Stream(replica.seed, "initial weights").generator()
                alone: LinearModel = model_class(replica.model, self.signature, rng)
                weights = {name: weight.unsqueeze(0) for name, weight in alone.named_parameters()}
                torch.testing.assert_close(
                    together.kernel[row], alone.response(weights, horizon).kernel[0], rtol=1e-10, atol=1e-12
                )

    def test_balancing_changes_the_gauge_and_nothing_else(self) -> None:
        model = self.build()
        if not isinstance(model, LinearModel):
            return
        weights = {name: weight.detach().unsqueeze(0) for name, weight in model.named_parameters()}
        balanced = model.balanced(weights)
        before, after = (model.response(w, self.signature.horizon) for w in (weights, balanced))
        torch.testing.assert_close(before.kernel, after.kernel, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(before.drift, after.drift, rtol=1e-10, atol=1e-12)
        encoder, readout = (self._by_mode(balanced, part) for part in (Part.ENCODER, Part.READOUT))
        torch.testing.assert_close(encoder, readout, rtol=1e-10, atol=1e-12)

    def _by_mode(self, weights: dict[str, Tensor], part: Part) -> Tensor:
        """Size of each mode's weights of one part."""
        (name,) = [name for name, role in self.model_class().roles.items() if role.part is part]
        axis = self.model_class().roles[name].axes.index("width")
        return weights[name][0].movedim(axis, 0).flatten(1).norm(dim=-1)

    def test_a_linear_model_is_its_response(self) -> None:
        model = self.build()
        if not isinstance(model, LinearModel):
            return
        weights = {name: weight.unsqueeze(0) for name, weight in model.named_parameters()}
        response = model.response(weights, self.signature.horizon)
        inputs = self.inputs()
        expected = response.drift[0].T.expand(inputs.shape[0], -1, -1).clone()
        for lag in range(self.signature.horizon):
            past = inputs[:, : self.signature.horizon - lag]
            expected[:, lag:] += past @ response.kernel[0, :, :, lag].T
        torch.testing.assert_close(model(inputs), expected, rtol=1e-10, atol=1e-12)
