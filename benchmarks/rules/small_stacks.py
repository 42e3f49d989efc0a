"""Residual stacks with weights, inputs and losses on which gradients of learning rules are compared.

Letters: N replicas, B batch, T time, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor

from benchmarks.rules.stepping import Online
from memsweep import registry
from memsweep.learning.memory import LiveBytes
from memsweep.models.base import Signature
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.rules.batched import learning_by
from memsweep.streams import Stream

registry.discover()
INPUTS, OUTPUTS, FEATURES = 2, 2, 3


def unit_config(name: str, **fields: Any) -> Any:
    return registry.get(registry.UNIT, name).Config(**fields)


def fits(rule: str, config: Any) -> bool:
    """Whether models of this config can learn by a rule."""
    return registry.get(registry.RULE, rule).refusal(ResidualStack, config) is None


def forward_rules() -> list[str]:
    """The rules that go forward in time."""
    return [name for name in registry.names(registry.RULE) if registry.get(registry.RULE, name).forward]


def relative(found: Tensor, expected: Tensor) -> float:
    """Size of the difference, in that of what is expected (or as it is, where that is zero)."""
    size = float(expected.norm())
    return float((found - expected).norm()) / (size if size > 0.0 else 1.0)


@dataclass(frozen=True)
class Case:
    """Models in a state where no weight is special, and a batch with a squared error at every step.

    Attributes:
        model: a residual stack.
        weights: ``[N, *shape]``, float64.
        inputs: ``[B, T, I]``.
        targets: ``[B, T, O]``.
    """

    model: ResidualStack
    weights: dict[str, Tensor]
    inputs: Tensor
    targets: Tensor

    def losses(self, outputs: Tensor, start: int = 0) -> Tensor:
        """``[N]``, summed over batch and time, of outputs ``[N, B, T, O]`` whose first step is ``start``."""
        aim = self.targets[:, start : start + outputs.shape[2]]
        return 0.5 * (outputs - aim).square().sum((1, 2, 3))

    def batched(self, rule: str) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Losses ``[N]``, outputs and gradient of the whole batch by a rule."""
        named = {name: weight.detach().requires_grad_() for name, weight in self.weights.items()}
        with learning_by(rule, self.model):
            outputs = self.model.outputs(named, self.inputs)
            loss = self.losses(outputs)
            found = torch.autograd.grad(loss.sum(), list(named.values()), allow_unused=True, materialize_grads=True)
        return loss.detach(), outputs.detach(), dict(zip(named, found, strict=True))

    def gradient(self, rule: str) -> dict[str, Tensor]:
        return self.batched(rule)[2]

    def online(self, rule: str) -> Online:
        return Online(self.model, self.weights, rule)

    def step_loss(self, step: int) -> Callable[[Tensor], Tensor]:
        """The loss of one step's outputs."""
        return lambda outputs: self.losses(outputs, step)

    def stepped(self, rule: str) -> tuple[Tensor, dict[str, Tensor]]:
        """Losses ``[N]`` and gradient of the batch by a rule, step after step."""
        online, loss = self.online(rule), torch.zeros(())
        for step, x_BI in enumerate(self.inputs.unbind(1)):
            loss = loss + online.step(x_BI, self.step_loss(step))
        return loss, online.gradient()

    def in_layer(self, layer: int | None) -> list[str]:
        """Names of the weights of a layer; None: of those outside of all layers."""
        return [name for name, role in self.model.roles(self.model.config).items() if role.layer == layer]


class Endless:
    """A case's models on endless sequences, step after step.

    Attributes:
        steps: that they have read.
    """

    def __init__(self, stack: Case, rule: str) -> None:
        self.steps = 0
        self._online, self._batch = stack.online(rule), len(stack.inputs)

    def go(self, steps: int) -> None:
        """Read more steps."""
        for _ in range(steps):
            x = Stream(1, "steps").generator(self.steps).standard_normal((self._batch, INPUTS))
            self._online.step(torch.from_numpy(x), lambda outputs: outputs.square().sum((1, 2, 3)))
            self.steps += 1

    def bytes(self) -> tuple[int, ...]:
        """Held after each of the next three steps, and the most during them.

        A step makes all anew that the next one needs, so that what was made since the first of four is all that is
        held; weights and gradient, which stand still, do not count.
        """
        self.go(1)
        with LiveBytes() as count:
            held = []
            for _ in range(3):
                self.go(1)
                held.append(count.moments[-1])
        return *held, count.peak


def case(unit: Any, replicas: int = 1, batch: int = 2, steps: int = 5, seed: int = 3, **fields: Any) -> Case:
    """A case of some unit's config, of the least width from ``FEATURES`` on; ``fields`` are the stack's."""
    kind = registry.get(registry.UNIT, unit.name)
    width = next(width for width in count(FEATURES) if kind.refusal(unit, width, FEATURES) is None)
    config = ResidualStack.Config(unit=unit, **{"width": width, "features": FEATURES} | fields)
    generator = Stream(seed, "small_stacks").generator(0)

    def drawn(*shape: int) -> Tensor:
        return torch.from_numpy(generator.standard_normal(shape))

    model = ResidualStack(config, Signature(INPUTS, OUTPUTS, steps), generator)
    # biases and norms begin at values where a wrong derivative may not show
    weights = {
        name: (weight.detach() + 0.2 * drawn(replicas, *weight.shape)) for name, weight in model.named_parameters()
    }
    return Case(model, weights, drawn(batch, steps, INPUTS), drawn(batch, steps, OUTPUTS))


def flat(gradient: dict[str, Tensor], names: list[str] | None = None) -> Tensor:
    """Gradients of some weights (all: None) as one vector."""
    return torch.cat([gradient[name].flatten() for name in (gradient if names is None else names)])


def from_unit(stack: Case, layer: int) -> list[str]:
    """Weights of a layer's unit and of all that stands behind it; a norm before the unit is not."""
    prenorm, layers = stack.model.config.prenorm, range(layer, stack.model.config.layers)
    names = [name for of in layers for name in stack.in_layer(of)]
    behind = [name for name in stack.in_layer(None) if not name.startswith("encoder")]
    return [
        name for name in names if not (prenorm and name.startswith("norm_") and name.endswith(f"_l{layer}"))
    ] + behind
