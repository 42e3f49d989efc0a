"""What every model is, and what a linear model can say beyond that.

Letters: N leading dimensions (replicas first, then copies), B batch, T time, I inputs, O outputs, M width.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn


class Part(enum.StrEnum):
    """What a weight tensor does; decides which ball moves it and which penalty it pays."""

    RECURRENT = "recurrent"
    ENCODER = "encoder"
    READOUT = "readout"
    BIAS = "bias"


@dataclass(frozen=True)
class Role:
    """Meaning of one weight tensor.

    Attributes:
        part: what the tensor does.
        axes: a name per dimension; dimensions named ``width`` are padded with zeros in an ensemble of mixed widths.
        diagonal: the tensor is the diagonal of a matrix, so its spectral norm is its largest entry.
    """

    part: Part
    axes: tuple[str, ...]
    diagonal: bool = False


@dataclass(frozen=True)
class Signature:
    """The shape of a task as a model sees it: input and output sizes and the horizon (sequence length)."""

    inputs: int
    outputs: int
    horizon: int


@dataclass(frozen=True)
class Response:
    """Everything that a linear model does.

    Attributes:
        kernel: ``[N, O, I, T]``, answer at lag s to a unit impulse at input i.
        drift: ``[N, O, T]``, answer at time t to the biases alone.
    """

    kernel: Tensor
    drift: Tensor


Weights = Mapping[str, Tensor]


class Model(nn.Module, ABC):
    """One replica of a recurrent model, ``[B, T, I] -> [B, T, O]``, causal in time.

    A model class owns a frozen ``Config`` with ``width``, names its weight tensors in ``roles`` and draws their
    initial values in ``initial``. The constructor is the engine's; a model reads ``self.config`` and
    ``self.signature`` and computes in ``forward`` from its parameters.

    Example::

        @register_model("leaky")
        class Leaky(Model):
            @dataclass(frozen=True, kw_only=True)
            class Config:
                width: int = setting(8, "number of leaky units", at_least=1)

            roles = {"leak": Role(Part.RECURRENT, ("width",), diagonal=True), ...}
    """

    Config: ClassVar[type]
    roles: ClassVar[Mapping[str, Role]]
    linear: ClassVar[bool] = False
    """The output is linear in the input, and the impulse response says everything (see LinearModel)."""
    pack_fields: ClassVar[frozenset[str]] = frozenset()
    """Config fields in which the replicas of one ensemble may differ (linear models only)."""

    def __init__(self, config: Any, signature: Signature, rng: np.random.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.signature = signature
        for name, value in self.initial(config, signature, rng or np.random.default_rng(0)).items():
            self.register_parameter(name, nn.Parameter(torch.as_tensor(value)))
        self.setup()

    @classmethod
    @abstractmethod
    def initial(cls, config: Any, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Initial weights, float64, one array for each entry of ``roles``; a function of the generator alone."""

    def setup(self) -> None:
        """Hook for what a model derives from its config once; called at the end of the constructor."""

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs ``[B, T, O]`` for inputs ``[B, T, I]``; output t may depend on inputs 0 ... t only."""

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Outputs of many models on the same inputs: weights ``[N, ...]``, inputs ``[B, T, I]`` -> ``[N, B, T, O]``."""

        def one(single: dict[str, Tensor]) -> Tensor:
            return torch.func.functional_call(self, single, (inputs,))

        return torch.func.vmap(one, randomness="error")(dict(weights))


class LinearModel(Model):
    """A model whose output is linear in its input: its impulse response says everything, exactly."""

    linear = True

    @classmethod
    def ensemble_of(cls, configs: Sequence[Any], signature: Signature) -> Self:
        """A model that computes for replicas of different configs at once.

        Its methods take weights whose first dimension runs over ``configs``; its own parameters mean nothing.
        The configs may differ in ``pack_fields`` only.
        """
        model = cls(configs[0], signature)
        model.configure(configs)
        return model

    @abstractmethod
    def configure(self, configs: Sequence[Any]) -> None:
        """Prepare for weights whose leading dimension runs over these configs."""

    @abstractmethod
    def response(self, weights: Weights, horizon: int) -> Response:
        """Impulse response and drift of models with stacked weights ``[N, ...]``, differentiable."""

    @abstractmethod
    def eigenvalues(self, weights: Weights) -> Tensor:
        """Eigenvalues of the recurrence per time step, ``[N, M]``; the linear model is stable when all are inside 1."""

    @abstractmethod
    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        """The same models with encoder and readout of equal size in every mode.

        (u, c) -> (u/s, c s) leaves a linear model unchanged but moves its stability radius under perturbation of
        all weights; the balanced gauge makes that radius a property of the function.
        """
