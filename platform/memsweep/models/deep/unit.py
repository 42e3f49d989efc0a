"""The base classes of units, the layers' memory in a deep model, and the derivatives that learning rules use.

A unit answers the inputs of its layer, causally in time. It runs over whole sequences or goes from step to step with a
state, and backpropagation through time trains any unit.

An ``OnlineUnit`` can learn forward in time, too. It is one recurrence, h_t = f(x_t, h_{t-1}) with h_{-1} = 0, and a map
from its states to the layer's answers. The tensors that multiply states and inputs inside f are its parts. They are
functions of the weights, such as the eigenvalue exp(-exp(nu) + i exp(theta)) of an LRU. State i depends directly on
row i of every part alone, so that the derivative of h_t by a part, kept for each state's own row, has the shape of the
part.

Complex derivatives follow torch's convention: the gradient of a real loss L by z = a + ib is dL/da + i dL/db. A
sensitivity e = dh/dz of a holomorphic map gives the gradient conj(e) times that of h.

Letters: N leading dimension (replicas and copies), B batch, T time, F features of the layer's input, M width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from memsweep import registry
from memsweep.errors import listed
from memsweep.models.base import Part, Role, Signature, StackedModel, Weights

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

Parts = Mapping[str, Tensor]
"""The tensors that multiply states and inputs, by name: ``[N, M, ...]`` each."""


State = dict[str, Tensor]
"""The state that a unit carries from one step to the next, by name: ``[N, B, ...]`` each."""


class Unit(ABC):
    """One memory of a deep model, independent of the layers around it.

    A unit owns a frozen ``Config`` and registers itself by ``register_unit``; every deep model can then use it.

    Args:
        config: of the unit.
        width: M, size of the state (complex numbers count once), or of what makes it.
        features: F, size of the layer's input and of its answer.
    """

    Config: ClassVar[type]
    answers_with_states: ClassVar[bool] = False
    """Whether its answers are its ``width`` states, however many features it reads: it can read a task's inputs."""

    def __init__(self, config: Any, width: int, features: int) -> None:
        self.config, self.width, self.features = config, width, features

    @classmethod
    def refusal(cls, config: Any, width: int, features: int) -> str | None:
        """Why a unit cannot have these sizes, as a sentence that says what to do; None by default: it can."""
        return None

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        """Why such a unit cannot run as the trial says, a sentence without a full stop each; nothing where it can."""
        yield from ()

    @classmethod
    def is_linear(cls, config: Any) -> bool:
        """Whether states and answers are linear in the inputs; False by default."""
        return False

    @abstractmethod
    def roles(self) -> Mapping[str, Role]:
        """The role of each weight tensor, by its name; the model fills in ``layer``."""

    @abstractmethod
    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Initial weights, float64, one array for each entry of ``roles``."""

    @abstractmethod
    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        """The answers to whole sequences, ``[N, B, T, F]``, real and differentiable once."""

    @abstractmethod
    def step(self, weights: Weights, x_NBF: Tensor, state: State | None) -> tuple[Tensor, State]:
        """The answers of one step, ``[N, B, F]``, and the state after it; None: before the first step."""

    def products(self, horizon: int) -> int:
        """Multiplications of one step of a sequence besides those by its weights, for estimates; 0 by default."""
        return 0

    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        """The same unit with input and output weights of equal size; called for linear units only.

        Args:
            weights: ``[N..., *shape]``, any number of leading dimensions.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how it is balanced")

    def eigenvalues(self, weights: Weights) -> Tensor | None:
        """Eigenvalues of the recurrence linearized at rest, ``[N, modes]``; None by default."""
        return None


class OnlineUnit(Unit):
    """A recurrence that says the derivatives of its steps: every learning rule can train it."""

    elementwise: ClassVar[bool] = False
    """Whether each state depends on its own past alone: dh_t/dh_{t-1} is diagonal, and exact sensitivities are of the
    size of the weights."""
    part_names: ClassVar[frozenset[str]]
    """Names of all parts."""
    forgetting: ClassVar[frozenset[str]] = frozenset()
    """Parts inside the recurrence, and the scale of its input; the other parts bring the input to the states."""

    @classmethod
    def registration_problem(cls) -> str | None:
        """Why the registry refuses a class that defines all methods: the end of a sentence about it. None: nothing."""
        if not hasattr(cls, "part_names"):
            return "does not name its parts: write 'part_names = frozenset({...})', the keys of what parts() returns."
        return None

    @abstractmethod
    def parts(self, weights: Weights) -> dict[str, Tensor]:
        """The parts, differentiable by the weights, ``[N, *shape]``."""

    @abstractmethod
    def states(self, parts: Parts, x_NBTF: Tensor) -> Tensor:
        """All states, ``[N, B, T, M]``, differentiable once by parts and inputs: backpropagation through time."""

    @abstractmethod
    def advance(self, parts: Parts, x_NBTF: Tensor, before_NBTM: Tensor, recurrent: bool = True) -> Tensor:
        """One step from each of the states before, all steps at once, differentiable: ``[N, B, T, M]``.

        Args:
            parts: as from ``parts``.
            x_NBTF: inputs.
            before_NBTM: h_{t-1} of each step.
            recurrent: whether a gradient passes the recurrent connection, to ``before_NBTM`` and to the parts that
                multiply it. The value is the same.
        """

    @abstractmethod
    def slope(self, parts: Parts, x_NBTF: Tensor, before_NBTM: Tensor) -> Tensor:
        """Diagonal of dh_t / dh_{t-1}, ``[N, B, T, M]``; all of that matrix where the unit is ``elementwise``."""

    @abstractmethod
    def immediate(self, parts: Parts, x_NBF: Tensor, before_NBM: Tensor) -> dict[str, Tensor]:
        """Derivative of h_t by each part's own row at fixed h_{t-1}: ``[N, B, *shape of the part]``, by its name."""

    @abstractmethod
    def answers(self, weights: Weights, states_NBTM: Tensor, x_NBTF: Tensor) -> Tensor:
        """The answers of the unit to its layer, ``[N, B, T, F]``, real and differentiable."""

    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        return self.answers(weights, self.states(self.parts(weights), x_NBTF), x_NBTF)

    def step(self, weights: Weights, x_NBF: Tensor, state: State | None) -> tuple[Tensor, State]:
        parts, x_NB1F = self.parts(weights), x_NBF.unsqueeze(2)
        before_NB1M = rest(self, parts, x_NB1F) if state is None else state["states"].unsqueeze(2)
        states_NB1M = self.advance(parts, x_NB1F, before_NB1M)
        return self.answers(weights, states_NB1M, x_NB1F).squeeze(2), {"states": states_NB1M.squeeze(2)}


class LayerUnit(Unit):
    """A unit of which each layer has an object of its own, such as one that runs a user's module.

    Its code runs where a study is planned or computed, and nowhere else: a report asks for none of its weights.
    """

    @classmethod
    @abstractmethod
    def problems_of_code(cls, config: Any, trial: TrialConfig) -> Iterator[str]:
        """Why a unit of this Config cannot run as the trial says, which only running its code shows."""

    @classmethod
    @abstractmethod
    def notes_of_code(cls, config: Any, trial: TrialConfig) -> Iterator[str]:
        """Notes for the reader on such a unit, which only running its code shows."""

    @classmethod
    def guessed_roles(cls, config: Any, trial: TrialConfig) -> Mapping[str, Part]:
        """The weights of one layer whose role was guessed, with what each is taken to be; none by default."""
        return {}

    @classmethod
    @abstractmethod
    def code(cls, config: Any) -> set[tuple[str, str]]:
        """Definitions besides the class that a Config names: (module, name at its top)."""

    @abstractmethod
    def of_layer(self, layer: int, horizon: int) -> None:
        """Takes its place in a model; called once, before it runs."""

    @abstractmethod
    def in_mode(self, training: bool) -> None:
        """Says before each call of ``run`` whether the model is in training."""

    @abstractmethod
    def begin_step(self, seeds: Sequence[int], step: int) -> None:
        """Prepares the random numbers of one training step, one seed per replica."""

    @abstractmethod
    def statistics_after(self) -> Mapping[str, Tensor]:
        """The statistics (``Part.STATISTIC``) after the last call in training, ``[N, *shape]``, by name."""


def units_of(config: Any) -> tuple[Any, ...]:
    """The Configs of a deep model's units, that of the first layer first; they repeat to its depth."""
    return getattr(config, "units_", None) or (config.unit,)


def kinds_of(config: Any) -> dict[Any, type[Unit]]:
    """The Configs of a deep model's units, each once, with their classes."""
    return {each: registry.get(registry.UNIT, each.name) for each in units_of(config)}


def refusals(config: Any) -> Iterator[str]:
    """Why units of a deep model cannot have its sizes: a sentence each."""
    found = (kind.refusal(unit, config.width, config.features) for unit, kind in kinds_of(config).items())
    yield from filter(None, found)


def still(trial: TrialConfig, parts: Collection[Part]) -> Iterator[str]:
    """A ball that would move nothing, where units have weights of these parts: a sentence."""
    if "recurrent" in trial.perturbation.balls and Part.RECURRENT not in parts:
        units = listed([*dict.fromkeys(each.name for each in units_of(trial.model))], 5)
        yield (
            f"perturbation.balls has recurrent, but the unit {units}, as it is set here, has no recurrent weights, so "
            "that nothing would move: leave that ball out, as in perturbation.balls: [all]"
        )


def grows(unit: Unit) -> bool:
    """Whether the states of a unit are larger after a second step."""
    drawn = unit.initial(2, np.random.default_rng(0))
    weights = {name: torch.from_numpy(value).unsqueeze(0) for name, value in drawn.items()}
    state, shapes = None, []
    for _ in range(2):
        _, state = unit.step(weights, torch.zeros(1, 1, unit.features, dtype=torch.float64), state)
        shapes.append({name: value.shape for name, value in state.items()})
    return shapes[0] != shapes[1]


def has_layer_units(config: Any) -> bool:
    """Whether the layers of a deep model have units of their own: several kinds, or a ``LayerUnit``."""
    mixed = bool(getattr(config, "units_", None))
    return mixed or issubclass(registry.get(registry.UNIT, config.unit.name), LayerUnit)


def unit_of_layer(config: Any, layer: int) -> Unit:
    """The unit of a layer where layers have units of their own."""
    own = units_of(config)[layer % len(units_of(config))]
    unit: Unit = registry.get(registry.UNIT, own.name)(own, config.width, config.features)
    return unit


def units_at(config: Any, horizon: int) -> list[Unit]:
    """The units of all layers of such a model, in their places."""
    units = [unit_of_layer(config, layer) for layer in range(config.layers)]
    for layer, unit in enumerate(units):
        if isinstance(unit, LayerUnit):
            unit.of_layer(layer, horizon)
    return units


def begin_step_of(units: Sequence[Unit], seeds: Sequence[int], step: int) -> None:
    """``LayerUnit.begin_step`` of those that have it."""
    for unit in units:
        if isinstance(unit, LayerUnit):
            unit.begin_step(seeds, step)


def in_mode(unit: Unit, training: bool) -> Unit:
    """The unit of a layer, in a mode."""
    if isinstance(unit, LayerUnit):
        unit.in_mode(training)
    return unit


def statistics_of(units: Sequence[Unit]) -> dict[str, Tensor]:
    """``LayerUnit.statistics_after`` of those that have it, by the names of a deep model's weights."""
    return {
        f"{name}_l{layer}": value
        for layer, unit in enumerate(units)
        if isinstance(unit, LayerUnit)
        for name, value in unit.statistics_after().items()
    }


class Recurrence:
    """How the layers of a deep model run over time: backpropagation through time, unless a learning rule takes over."""

    def answers(self, layer: int, unit: Unit, weights: Weights, x_NBTF: Tensor) -> Tensor:
        """Answers of a layer's unit, ``[N, B, T, F]``: values never depend on the rule, gradients do."""
        del layer
        return unit.run(weights, x_NBTF)

    def features(self, x_NBTF: Tensor) -> Tensor:
        """The features that the readout reads, from the last layer's answers."""
        return x_NBTF

    def average(self, x_NBTF: Tensor) -> Tensor:
        """Mean of the features of all steps up to each one, ``[N, B, T, F]``."""
        steps = torch.arange(1, x_NBTF.shape[2] + 1, dtype=x_NBTF.dtype, device=x_NBTF.device)
        return x_NBTF.cumsum(2) / steps[:, None]


def rest(unit: OnlineUnit, parts: Parts, x_NB1F: Tensor) -> Tensor:
    """The states before the first step: zeros, ``[N, B, 1, M]``."""
    dtype = reduce(torch.promote_types, (part.dtype for part in parts.values()), x_NB1F.dtype)
    return x_NB1F.new_zeros((*x_NB1F.shape[:3], unit.width), dtype=dtype)


def before(states_NBTM: Tensor) -> Tensor:
    """h_{t-1} of every step, from all states: zeros, then all but the last."""
    return torch.cat([torch.zeros_like(states_NBTM[:, :, :1]), states_NBTM[:, :, :-1]], 2)


def mapped(matrix_NMF: Tensor, x_NBTF: Tensor) -> Tensor:
    """The product of a matrix with every step's vector, ``[N, B, T, M]``."""
    return (x_NBTF.flatten(1, 2) @ matrix_NMF.mT).unflatten(1, x_NBTF.shape[1:3])


def is_deep(config: Any) -> bool:
    """Whether a model, given by its Config, is a ``DeepModel``."""
    return issubclass(registry.get(registry.MODEL, config.name), DeepModel)


class DeepModel(StackedModel):
    """A model that runs every recurrence by ``self.recurrence``; its Config has a field ``unit``, a unit's Config.

    Attributes:
        recurrence: how its layers run over time. ``outputs`` calls ``recurrence.answers`` once for each layer, from the
            first to the last, and lets the readout read ``recurrence.features``.
    """

    def __init__(self, config: Any, signature: Signature, rng: np.random.Generator | None = None) -> None:
        super().__init__(config, signature, rng)
        self.recurrence = Recurrence()

    @classmethod
    def registration_problem(cls) -> str | None:
        if "unit" not in {field.name for field in fields(cls.Config)}:
            return (
                'has a Config without unit: write in it \'unit: Any = setting(doc="the recurrence of every layer", '
                'factory=LRUUnit.Config, registered="unit")\'.'
            )
        return super().registration_problem()

    @classmethod
    def guessed_roles(cls, trial: TrialConfig) -> Mapping[str, Part]:
        foreign = {each: kind for each, kind in kinds_of(trial.model).items() if issubclass(kind, LayerUnit)}
        return {
            f"{name} of {getattr(each, 'factory', each.name)}" if len(foreign) > 1 else name: part
            for each, kind in foreign.items()
            for name, part in kind.guessed_roles(each, trial).items()
        }

    @classmethod
    def rule_refusal(cls, config: Any) -> str | None:
        """Why no rule that goes forward in time fits a model of this config, whatever its unit; None by default."""
        return None
