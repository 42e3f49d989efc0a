"""The base classes of models: any model, a linear one, and one that is a single recurrent layer.

Letters: N leading dimensions (replicas first, then copies), B batch, T time, I inputs, O outputs, M width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from memsweep import registry
from memsweep.models.registered import contract_problems, has_group, models_where, pattern_problems
from memsweep.models.roles import Group as Group
from memsweep.models.roles import Part as Part
from memsweep.models.roles import Role as Role
from memsweep.models.roles import Signature as Signature
from memsweep.recurrence.layer import FlatDiagonal, Layer, repeated
from memsweep.recurrence.layer_outputs import layer_outputs
from memsweep.recurrence.linear.modal_loss import Modes

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig


@dataclass(frozen=True)
class Response:
    """The response of a linear model, which describes it completely.

    Attributes:
        kernel: ``[N, O, I, T]``, answer at lag s to a unit impulse at input i.
        drift: ``[N, O, T]``, answer at time t to the biases alone.
    """

    kernel: Tensor
    drift: Tensor


@dataclass(frozen=True)
class Traits:
    """How models of one config may be computed and combined; each default is the slow and safe way.

    Attributes:
        linear: the output is linear in the input; a ``LinearModel`` then knows it by its impulse response.
        layer: one recurrent layer between affine maps, computed by kernels (``LayerModel``).
        pack_fields: config fields in which the replicas of one ensemble may differ; none: one trial an ensemble.
        separate_modes: the recurrence is a set of independent modes, one per unit of width, in the basis of ``modal``.
        carries_states: a model can go on from the states in which it ended (``outputs_from``).
        whole_batch: a training batch must come at once, because the output of a sequence depends on the others.
        reads_ids: the inputs are ids ``[B, T]`` of symbols (``data.task.as_ids``), not numbers.
        runs_longer: a model can run over more steps than the horizon.
        trains_plainly: a study adds to a loop with torch.optim what it says alone: no penalty, clipping or schedule.
    """

    linear: bool = False
    layer: bool = False
    pack_fields: frozenset[str] = frozenset()
    separate_modes: bool = False
    carries_states: bool = False
    whole_batch: bool = False
    reads_ids: bool = False
    runs_longer: bool = True
    trains_plainly: bool = False


Weights = Mapping[str, Tensor]


class Model(nn.Module, ABC):
    """One replica of a recurrent model, ``[B, T, I] -> [B, T, O]``, causal in time.

    A model class owns a frozen ``Config`` with ``width``, names its weight tensors in ``roles`` and draws their
    initial values in ``initial``. The constructor is the engine's; a model reads ``self.config`` and
    ``self.signature`` and computes in ``forward`` from its parameters. A model that computes faster for many replicas
    at once is a ``StackedModel``.

    Example::

        @register_model("leaky")
        class Leaky(Model):
            @dataclass(frozen=True, kw_only=True)
            class Config:
                width: int = setting(8, "number of leaky units", at_least=1)

            @classmethod
            def roles(cls, config):
                return {"leak": Role(Part.RECURRENT, ("width",), diagonal=True), ...}
    """

    Config: ClassVar[type]
    first_row: int = 0
    """Which sequence of its batch is the first of the inputs: a batch may come in pieces, one after the other."""

    def __init__(self, config: Any, signature: Signature, rng: np.random.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.signature = signature
        for name, value in self.initial(config, signature, rng or np.random.default_rng(0)).items():
            self.register_parameter(name, nn.Parameter(torch.as_tensor(value)))
        self.configure([config])

    @classmethod
    def registration_problem(cls) -> str | None:
        """Why the registry refuses a class that defines all methods: the end of a sentence about it. None: nothing."""
        if "width" not in {field.name for field in fields(cls.Config)}:
            return "has a Config without width: write in it 'width: int = setting(8, \"hidden size\", at_least=1)'."
        return None

    # Every model defines these three.

    @classmethod
    @abstractmethod
    def roles(cls, config: Any) -> Mapping[str, Role]:
        """The role of each weight tensor, by its name."""

    @classmethod
    @abstractmethod
    def initial(cls, config: Any, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Initial weights, float64, one array for each entry of ``roles``; a function of the generator alone."""

    @classmethod
    def roles_at(cls, config: Any, signature: Signature) -> Mapping[str, Role]:
        """``roles`` of a model of a task; by default the task decides the sizes of the weights, not their names."""
        del signature
        return cls.roles(config)

    @classmethod
    def count_parameters(cls, config: Any, task: Any) -> int:
        """How many numbers training changes, of a model of a task's Config."""
        made = registry.get(registry.TASK, task.name)(task)
        signature = Signature(made.inputs, made.outputs, made.horizon)
        roles, weights = cls.roles_at(config, signature), cls.initial(config, signature, np.random.default_rng(0))
        return sum(weight.size for name, weight in weights.items() if roles[name].part is not Part.STATISTIC)

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs ``[B, T, O]`` for inputs ``[B, T, I]``; output t may depend on inputs 0 ... t only."""

    @cached_property
    def weight_axes(self) -> dict[str, tuple[str, ...]]:
        """The axes of each weight tensor of one replica, by its name, from ``roles_at``."""
        return {name: role.axes for name, role in self.roles_at(self.config, self.signature).items()}

    # Optional: how replicas are computed together.

    @classmethod
    def traits(cls, config: Any) -> Traits:
        """How models of a config may be computed and combined; by default none of the shortcuts."""
        return Traits()

    def configure(self, configs: Sequence[Any]) -> None:
        """Prepares for weights whose first dimension runs over these configs; nothing by default.

        The constructor calls it with the model's own config, ``ensemble_of`` with all of an ensemble.
        """
        del configs

    @classmethod
    def ensemble_of(cls, configs: Sequence[Any], signature: Signature) -> Self:
        """A model that computes for replicas of different configs at once; the engine's, not to be overridden.

        Its methods take weights whose first dimension runs over ``configs``; its own parameters mean nothing.
        The configs may differ in ``Traits.pack_fields`` only.
        """
        model = cls(configs[0], signature)
        model.configure(configs)
        return model

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Outputs of many models on the same inputs, by default ``forward`` under torch's vmap.

        Args:
            weights: stacked, ``[N, ..., *shape]``: replicas first, then any number of copies.
            inputs: ``[B, T, I]``.

        Returns:
            ``[N, ..., B, T, O]``.
        """
        leading, flat = flattened(self, weights)

        def one(single: dict[str, Tensor]) -> Tensor:
            return torch.func.functional_call(self, single, (inputs,))

        return torch.func.vmap(one, randomness="error")(flat).unflatten(0, leading)

    def outputs_from(self, weights: Weights, inputs: Tensor, states: Tensor | None) -> tuple[Tensor, Tensor]:
        """``outputs`` of models that start in given states; called where ``Traits.carries_states`` is true.

        Args:
            weights, inputs: as for ``outputs``.
            states: ``[N, ..., B, M]``, before the first step; None: zeros.

        Returns:
            ``[N, ..., B, T, O]``, and the states after the last step, ``[N, ..., B, M]``.
        """
        raise NotImplementedError(f"{type(self).__name__} does not carry its states")

    def squared_gradient(
        self, weights: Tensor, inputs: Tensor, targets: Tensor, squares: Tensor, live: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """The loss sum_{b,t,o} squares_t (y - target)^2 of all replicas, and its gradient, where one call gives both.

        Args:
            weights: ``[N, S]``, of each replica one after the other, in the order of ``roles``.
            inputs, targets: ``[B, T, I]`` and ``[B, T, O]``.
            squares: ``[T]``.
            live: ``[N]``, bool: whose losses and gradients are needed; those of the others may be any finite numbers.

        Returns:
            ``[N]`` and ``[N, S]``; None by default: autograd differentiates ``outputs``.
        """
        return None

    # Optional: what is measured. None by default: the measurement is left out.

    def eigenvalues(self, weights: Weights) -> Tensor | None:
        """Eigenvalues per time step of the recurrence, linearized at rest: ``[N, ..., modes]``; None by default.

        A linear model is stable when all are inside the unit circle. Where replicas of several widths share an
        ensemble, the modes come in the order of the width axis.
        """
        return None

    def modal(self, weights: Weights, inverse: bool = False) -> dict[str, Tensor]:
        """The weights in the basis of the separate modes, or with ``inverse`` back; unchanged by default."""
        return dict(weights)

    def jacobians(self, weights: Weights, inputs: Tensor) -> Iterator[Tensor] | None:
        """dh_t / dh_{t-1} along the sequences, from the last step back to the second; None by default.

        Args:
            weights: stacked, ``[N, *shape]``.
            inputs: ``[B, T, I]``.

        Returns:
            T - 1 matrices ``[N, B, M, M]``, row i the derivative of state i.
        """
        return None

    def gradient_bound(self, weights: Weights, horizon: int) -> Tensor | None:
        """A bound of ||dh_T / dh_{T-k}|| for k = 0 ... T-1 that holds for all inputs, ``[N, T]``; None by default.

        Args:
            weights: stacked, ``[N, *shape]``.
            horizon: T.
        """
        return None

    # Optional: the weights of one replica as they come out, and come in.

    def state_of(self, weights: Weights) -> dict[str, Tensor]:
        """The argument of the plain module's ``load_state_dict``, from weights ``[*shape]``; the same by default."""
        return dict(weights)

    def weights_from(self, state: Weights) -> dict[str, Tensor]:
        """The inverse; unknown names stay. ValueError: a tensor that is no weight has another value than here."""
        return dict(state)

    # Optional: training.

    def penalty(self, weights: Weights) -> Tensor | None:
        """A term of the model's own in its objective, ``[N, ...]``, differentiable; None by default."""
        return None

    def start_step(self, seeds: Sequence[int], step: int) -> None:
        """Prepares the random numbers of one training step, one seed per replica (dropout); nothing by default."""
        del seeds, step

    def updated_statistics(self, weights: Weights) -> Mapping[str, Tensor]:
        """The statistics (``Part.STATISTIC``) after the last training step, by name; none by default."""
        return {}

    @classmethod
    def code(cls, config: Any) -> set[tuple[str, str]]:
        """Definitions besides the class that a config names: (module, name at its top); none by default."""
        return set()

    # The engine's: which trials such a model can run.

    @classmethod
    def problems_of_code(cls, trial: TrialConfig) -> Iterator[str]:
        """``problems`` that only running a model's code shows, before a study: by default, those of its contract."""
        yield from (*contract_problems(cls, trial), *pattern_problems(cls, trial))

    @classmethod
    def notes_of_code(cls, trial: TrialConfig, device: str) -> Iterator[str]:
        """Notes for the plan's reader on a model's code on a type of device; none by default."""
        yield from ()

    @classmethod
    def guessed_roles(cls, trial: TrialConfig) -> Mapping[str, Part]:
        """The weights whose role was guessed, with what each is taken to be, as running its code shows; none here."""
        return {}

    @classmethod
    def problems_of_states(cls, trial: TrialConfig) -> Iterator[str]:
        """Why the states of such a model cannot be rounded, as a clause; nothing where they can."""
        if not cls.traits(trial.model).layer:
            yield (
                f"the model {trial.model.name}, as it is set here, is not computed step by step (single layers such as "
                "diagonal_rnn and vanilla_rnn are, residual_stack, and a module with a method step)"
            )

    @classmethod
    def problems_of_certificates(cls, trial: TrialConfig) -> Iterator[str]:
        """Why no upper bound of the error of such a model is known, as a clause; nothing where one is."""
        yield f"no upper bound of the error of the model {trial.model.name} is known, only what a search finds"

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        """Why such a model cannot run as the trial says, a sentence without a full stop each; nothing where it can."""
        config, training = trial.model, trial.training
        if trial.perturbation.projected and getattr(config, "discretization", None) == "discrete":
            yield (
                "perturbation.projected puts rates in the place of raw weights, but with model.discretization discrete "
                "the weight of direct is the eigenvalue itself: use exact or euler, or projected false"
            )
        for group, given in training.groups.settings():
            if not has_group(group, cls, config):
                able = models_where(partial(has_group, group))
                yield (
                    f"training.groups.{group} sets {given}, but the model {config.name} has no weights in that group. "
                    f"Models that have some: {able}. Leave it out, or set training.learning_rate and "
                    "training.weight_decay, which are for all weights"
                )
        if registry.get(registry.TASK, trial.task.name).carries_states and not cls.traits(config).carries_states:
            yield (
                f"the task {trial.task.name} reads long sequences window by window, and the model {config.name}, as it "
                "is set here, cannot go on from the states of the window before. Models that can: "
                f"{models_where(lambda model, usual: model.traits(usual).carries_states)}"
            )
        for name in ("jacobians", "state_of", "weights_from"):  # called with the weights of one replica of a pack
            if cls.traits(config).pack_fields and getattr(cls, name) is not vars(Model)[name]:
                yield (
                    f"the model {config.name} defines {name}, which is called for one replica, and the model of a pack "
                    "is one of all replicas: leave Traits.pack_fields empty"
                )
        if 0 < training.micro_batch < training.batch_size and cls.traits(config).whole_batch:
            yield (
                f"training.micro_batch is {training.micro_batch}, but the model {config.name}, as it is set here, must "
                f"see a training batch ({training.batch_size} sequences) at once: its answer to a sequence depends on "
                "the others (batch norm, dropout that is drawn for all of it). Use 0, or a smaller batch_size"
            )

    @classmethod
    def sharing_problem(cls, config: Any) -> str | None:
        """Why several workers cannot share out the sequences of a training step; None where they can."""
        if getattr(config, "dropout", 0.0):
            return (
                "data cannot share out a step with dropout, whose draws are of the whole batch. Set model.dropout to "
                "0, or take strategy: replicas"
            )
        if cls.traits(config).whole_batch:
            return (
                f"data cannot share out a step of the model {config.name} as it is configured: it takes statistics of "
                "the whole batch (batch norm). Take a norm that does not, or strategy: replicas"
            )
        return None


def leading_shape(model: Model, weights: Weights) -> tuple[int, ...]:
    """The leading dimensions (replicas, copies) of stacked weights."""
    name, tensor = next(iter(weights.items()))
    return tuple(tensor.shape[: tensor.ndim - len(model.weight_axes[name])])


def flattened(model: Model, weights: Weights) -> tuple[tuple[int, ...], dict[str, Tensor]]:
    """The leading dimensions of stacked weights, and the weights with one in their place."""
    leading = leading_shape(model, weights)
    return leading, {name: value.flatten(0, len(leading) - 1) for name, value in weights.items()}


class StackedModel(Model):
    """A model that is written for many replicas at once: it defines ``outputs``, and one replica is a stack of one."""

    @abstractmethod
    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor: ...

    def forward(self, inputs: Tensor) -> Tensor:
        weights = {name: weight.unsqueeze(0) for name, weight in self.named_parameters()}
        return self.outputs(weights, inputs).squeeze(0)


class LinearModel(StackedModel):
    """A model whose output is linear in its input, by default or, with ``traits`` of its own, under some configs.

    Its impulse response then describes it exactly. ``response`` and ``balanced`` are called for linear configs only.
    """

    @classmethod
    def traits(cls, config: Any) -> Traits:
        return Traits(linear=True)

    @abstractmethod
    def response(self, weights: Weights, horizon: int) -> Response:
        """Impulse response and drift of models with stacked weights ``[N, ...]``, differentiable."""

    def as_modes(self, weights: Weights) -> Modes | None:
        """The same models as modes, where they have one input, one output and independent states; None elsewhere."""
        del weights
        return None

    @abstractmethod
    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        """The same models with encoder and readout of equal size (in every mode, where modes are independent).

        (u, c) -> (u/s, c s) leaves a linear model unchanged but moves its stability radius under perturbation of
        all weights; the balanced gauge makes that radius a property of the function.
        """


class LayerModel(LinearModel):
    """A model that is, under most configs, one recurrent layer between two affine maps; linear or not.

    The kernels of ``memsweep.recurrence.layer_outputs`` compute it with its gradients, faster than a loop over time.
    """

    @classmethod
    def traits(cls, config: Any) -> Traits:
        return Traits(linear=True, layer=True)

    @abstractmethod
    def layer(self, weights: Weights) -> Layer:
        """The layers of all replicas and copies, with one leading dimension; called where ``Traits.layer`` is true."""

    def flat_diagonal(self, weights: Tensor) -> FlatDiagonal | None:
        """The layers of flat weights ``[N, S]``, to be trained without autograd; None where ``layer`` is more."""
        del weights
        return None

    def outputs(self, weights: Weights, inputs: Tensor, live: Tensor | None = None) -> Tensor:
        """See ``Model.outputs``; replicas that are not ``live`` (``[N]``, bool) may have any finite outputs."""
        leading = leading_shape(self, weights)
        return layer_outputs(self.layer(weights), inputs, repeated(live, leading)).unflatten(0, leading)


def as_linear(model: Model) -> LinearModel | None:
    """The model as a linear one, or None when it is not linear under its config."""
    return model if isinstance(model, LinearModel) and model.traits(model.config).linear else None


def as_layer(model: Model) -> LayerModel | None:
    """The model as one recurrent layer, or None when it is not one under its config."""
    return model if isinstance(model, LayerModel) and model.traits(model.config).layer else None
