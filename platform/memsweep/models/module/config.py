"""The settings of a user's module."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from memsweep.config.core.arguments import Arguments
from memsweep.config.core.fields import setting
from memsweep.models.roles import Signature

EMBEDDING = 1
"""Ids beyond the symbols of a task: one, for a step without a symbol."""


@dataclass(frozen=True)
class ArgumentNames:
    """The arguments of a factory that take the sizes; None: the factory does not take this size."""

    inputs: str | None = "inputs"
    outputs: str | None = "outputs"
    horizon: str | None = "horizon"
    width: str | None = "width"


@dataclass(frozen=True, kw_only=True)
class RolesConfig:
    """Patterns of parameter names (``layers.*.gate.*``) by what the parameters do; they come before all guesses."""

    recurrent: tuple[str, ...] = setting((), "parameters of the recurrence, which the ball recurrent moves")
    encoder: tuple[str, ...] = setting((), "parameters between the inputs and the recurrence")
    readout: tuple[str, ...] = setting((), "parameters between the recurrence and the outputs")
    bias: tuple[str, ...] = setting((), "parameters that are added to something; the ball weights leaves them alone")
    gain: tuple[str, ...] = setting((), "scales, such as those of a normalization")

    def problems(self) -> Iterable[str]:
        written = [pattern for patterns in asdict(self).values() for pattern in patterns]
        for pattern in dict.fromkeys(each for each in written if written.count(each) > 1):
            yield f"the pattern {pattern!r} is written twice: a parameter has one role"


@dataclass(frozen=True, kw_only=True)
class ModuleConfig:
    """A torch module of your own, by its import path: [batch, time, inputs] -> [batch, time, outputs]."""

    factory: str = setting(
        doc="what makes the module: the Python module, a colon and the name of a class or function, my_nets:MinGRU; or "
        "a file, nets/gru.py:MinGRU. It is looked for in the workspace, in its search_spaces/, and among the installed "
        "packages. Arguments named inputs, outputs, horizon and width get the task's and the trial's sizes"
    )
    width: int = setting(8, "hidden size, for the argument that width_argument names", at_least=1, at_most=100_000)
    arguments: Arguments = setting(doc="further arguments of the factory, by name", factory=Arguments)
    tokens: bool = setting(
        False,
        "the module reads ids [batch, time], as an embedding does; inputs is then their number: the task's symbols, "
        "and one more for a step without a symbol",
    )
    inputs_argument: str | None = setting("inputs", "the factory's argument for the numbers of a step; null: none")
    outputs_argument: str | None = setting("outputs", "the factory's argument for the numbers of an output; null: none")
    horizon_argument: str | None = setting("horizon", "the factory's argument for the sequence length; null: none")
    width_argument: str | None = setting("width", "the factory's argument for the width; null: none")
    wrap: bool = setting(
        False,
        "true: the factory makes a layer or a language model, which gets what it lacks: an encoder (of ids an "
        "embedding) to width features, a readout, a slice of the logits",
    )
    roles: RolesConfig = setting(doc="what the parameters do, where names and types do not say it", factory=RolesConfig)
    recurrent_group: tuple[str, ...] = setting(
        (), "patterns of the parameters to which training.groups.recurrent gives a learning rate or decay of its own"
    )
    input_group: tuple[str, ...] = setting((), "the same for training.groups.input")
    optim_attribute: bool = setting(
        True,
        "a parameter's attribute _optim (as those of S4 have it) gives it a learning rate (lr) and a weight_decay of "
        "its own, where training.groups gives it none; false: the attribute is passed over",
    )
    replicas: str = setting(
        "auto",
        "how the seeds of a trial are computed: vmap (together, by torch.func.vmap), sequential (one after the other), "
        "or auto (where torch can: vmap on a GPU; on a processor seeds in training, and perturbed copies in a search, "
        "together where an operation gives at most 40 KiB for one of them, of larger ones vmap is slower)",
        choices=("auto", "vmap", "sequential"),
    )
    causal: bool = setting(
        True, "false: the module may read the future, as a bidirectional one does; otherwise that is refused"
    )

    def problems(self) -> Iterable[str]:
        if ":" not in self.factory:
            yield f"factory must be a module, a colon and a name, such as my_nets:MinGRU, got {self.factory!r}"

    @property
    def names(self) -> ArgumentNames:
        """The factory's own names of the sizes."""
        return ArgumentNames(self.inputs_argument, self.outputs_argument, self.horizon_argument, self.width_argument)

    def sizes(self, signature: Signature) -> Signature:
        """The sizes that the factory gets: of ids, their number instead of the inputs of a step."""
        ids = signature.inputs + EMBEDDING if self.tokens else signature.inputs
        return Signature(ids, signature.outputs, signature.horizon)


def asks_groups(config: Any) -> bool:
    """Whether a study puts parameters of a module into groups of the optimizer."""
    return bool(config.recurrent_group or config.input_group)


def wraps(config: Any) -> bool:
    """Whether a study adds an encoder and a readout to a module."""
    return bool(config.wrap)


_ALONE = "seeds are computed one after the other"


def way_by_vmap(refusal: str | None) -> str:
    """How the seeds of a trial are computed by vmap, in words; where it cannot, why."""
    return "seeds are computed together, by vmap" if refusal is None else f"{_ALONE} (torch's vmap cannot: {refusal})"


def way_one_by_one(config: ModuleConfig, seeds: bool, copies: bool) -> str:
    """The same where none are but those of small operations: the seeds of a training, perturbed copies of a search."""
    if config.replicas == "sequential":
        return f"{_ALONE} (as the study says)"
    if seeds:
        return "seeds, and perturbed copies in a search, are computed together where operations are small"
    return f"{_ALONE} (on a processor{'; perturbed copies together where operations are small' if copies else ''})"
