"""How a trial is trained: the section ``training`` of a study."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memsweep import registry
from memsweep.config.core.fields import DURING, setting

LINEAR_PENALTY, NONLINEAR_PENALTY = 1e-2, 1e-3
CLIP, SCHEDULE = 0.5, "cosine"
"""The values of settings that a study leaves out (``config.schema.trial.usual_training``)."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Settings of a stretch of training that lie before the present ones: a trial's lineage, part of its identity."""

    until: int = setting(doc="step before which they held", at_least=1)
    learning_rate: float = setting(doc="the optimizer's step size", above=0.0, at_most=1e4)
    weight_decay: float = setting(doc="the optimizer's weight decay", at_least=0.0)
    clip: float = setting(doc="largest gradient norm of one seed (0: no limit)", at_least=0.0)
    amplitude_penalty: float = setting(doc="weight of |encoder|^2 + |readout|^2", at_least=0.0)
    margin_penalty: float = setting(doc="weight of relu(1 - stability margin)", at_least=0.0)


TURNING = tuple(field.name for field in dataclasses.fields(Turn) if field.name != "until")
"""Fields of training that can change on the way."""


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """Settings of the optimizer for one group of weights; a setting that is left out is the one of training."""

    learning_rate: float | None = setting(None, "step size at the start", above=0.0, at_most=1e4)
    factor: float | None = setting(
        None,
        "step size as a multiple of training.learning_rate, which it follows wherever a search or a schedule moves it "
        "(0: these weights stay as they were drawn)",
        at_least=0.0,
        at_most=1e4,
    )
    weight_decay: float | None = setting(None, "weight decay", at_least=0.0)

    def problems(self) -> Iterable[str]:
        if self.learning_rate is not None and self.factor is not None:
            yield (
                f"learning_rate is {self.learning_rate:g} and factor is {self.factor:g}, which is a learning rate, "
                "too: leave one of them out"
            )


@dataclass(frozen=True, kw_only=True)
class ParameterGroupConfig(GroupConfig):
    """The same for the weights whose names fit a pattern."""

    parameters: tuple[str, ...] = setting(
        doc="patterns of names (``layers.*.log_step``), as memsweep describe has them"
    )

    def problems(self) -> Iterable[str]:
        yield from super().problems()
        if self.learning_rate is None and self.factor is None and self.weight_decay is None:
            yield "it sets nothing: give it a learning_rate, a factor or a weight_decay"


@dataclass(frozen=True, kw_only=True)
class GroupsConfig:
    """Groups of weights that may have settings of their own; models say which weights are in them."""

    orthogonal: GroupConfig = setting(
        doc="what an orthogonal matrix is made of (orthogonal_rnn, exp_rnn, nn_rnn)", factory=GroupConfig
    )
    triangle: GroupConfig = setting(doc="the strictly upper part of a non-normal matrix (nn_rnn)", factory=GroupConfig)
    recurrent: GroupConfig = setting(
        doc="what decides how a unit of a deep model forgets, and the scale of what it takes in (residual_stack)",
        factory=GroupConfig,
    )
    input: GroupConfig = setting(
        doc="what brings the input of a layer to the states of its unit (residual_stack)", factory=GroupConfig
    )

    def settings(self) -> list[tuple[str, str]]:
        """The groups that have settings of their own, each with them in words."""
        given = {
            field.name: {name: value for name, value in vars(getattr(self, field.name)).items() if value is not None}
            for field in dataclasses.fields(self)
        }
        return [
            (group, " and ".join(f"{name} {value:g}" for name, value in settings.items()))
            for group, settings in given.items()
            if settings
        ]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How the seeds of a trial are trained. The defaults were calibrated for stability verdicts."""

    # seeds and data
    seeds: int = setting(5, "models of the trial, each with its own initial weights", at_least=1, at_most=10_000)
    first_seed: int = setting(0, "the seeds are first_seed, first_seed + 1, ...", at_least=0, at_most=2**31)
    data_seed: int = setting(0, "seed of the task's train, validation and test streams", at_least=0, at_most=2**31)
    steps: int = setting(2500, "optimizer steps", at_least=0)
    batch_size: int = setting(512, "sequences per step", at_least=1)
    train_size: int = setting(
        0, "sequences of a fixed training set, shuffled every epoch (0: fresh sequences at every step)", at_least=0
    )
    # gradient
    rule: str = setting(
        "bptt",
        "how gradients are computed: bptt (backpropagation through time), or a rule that goes forward in time; see "
        "memsweep list rules",
        named=registry.RULE,
    )
    asked_measures: tuple[Any, ...] = setting(
        (), "the Configs of the measures that are asked for in training", opens="measure", when=DURING
    )
    micro_batch: int = setting(
        0,
        "sequences of a batch whose gradient is computed at a time, then added up (0: as many as a probe finds to fit "
        "memory)",
        at_least=0,
    )
    objective: str = setting(
        "minibatch",
        "what the gradient is of: minibatch (the loss on fresh sequences) or population (its exact expectation; "
        "linear models on tasks that know it; no sampling noise, so a different objective)",
        choices=("minibatch", "population"),
    )
    # optimizer
    optimizer: str = setting(
        "adamw",
        "adamw (weight decay apart from the gradient), adam or rmsprop (weight decay added to the gradient), each as "
        "torch.optim has it",
        choices=("adamw", "adam", "rmsprop"),
    )
    beta1: float = setting(0.9, "share of the mean gradient that adamw and adam keep", at_least=0.0, below=1.0)
    beta2: float = setting(
        0.999, "share of the mean squared gradient that adamw and adam keep", at_least=0.0, below=1.0
    )
    alpha: float = setting(0.99, "share of the mean squared gradient that rmsprop keeps", at_least=0.0, below=1.0)
    learning_rate: float = setting(
        0.01,
        "the optimizer's step size at its full height: after a warmup, before the schedule brings it down",
        above=0.0,
        at_most=1e4,
    )
    groups: GroupsConfig = setting(
        doc="learning rates and weight decays of some weights, where they differ from the others'", factory=GroupsConfig
    )
    parameter_groups: tuple[ParameterGroupConfig, ...] = setting(
        (), "the same by patterns of names, as many as are needed; the first that fits a weight without a group decides"
    )
    # schedule
    until: int = setting(
        0,
        "step after which training ends early although steps, over which the learning rate falls, are more (0: all "
        "steps); schedulers of a search set it",
        at_least=0,
    )
    turns: tuple[Turn, ...] = setting(
        (), "settings of earlier steps, under population-based training, which sets them; in order"
    )
    schedule: str | None = setting(
        None,
        "learning rate over the steps: cosine (down to 0), constant, or plateau (times plateau_factor when the "
        "validation loss has not improved by 0.01 % for more than plateau_patience validations); left out: cosine, and "
        "constant for the model module",
        choices=("cosine", "constant", "plateau"),
    )
    warmup: int = setting(
        0,
        "steps at the start over which the learning rate rises linearly to its full size; what schedule says begins "
        "after them",
        at_least=0,
    )
    plateau_factor: float = setting(0.1, "what a plateau multiplies the learning rate by", above=0.0, below=1.0)
    plateau_patience: int = setting(10, "validations without improvement that make no plateau yet", at_least=0)
    smallest_rate: float = setting(
        0.0, "stop a seed whose learning rate a plateau has brought below this (0: never)", at_least=0.0
    )
    # penalties and limits
    weight_decay: float = setting(0.0, "the optimizer's weight decay", at_least=0.0)
    clip: float | None = setting(
        None,
        "largest gradient norm of one seed; larger gradients are scaled down (0: no limit; left out: 0.5, and no limit "
        "for the model module)",
        at_least=0.0,
    )
    amplitude_penalty: float | None = setting(
        None,
        "weight of |encoder|^2 + |readout|^2 in the objective: prunes redundant modes, whose unidentified rates "
        "would otherwise move the stability radius with width (left out: 0; where the stability of a functional is "
        "measured 0.01 for linear models and 0.001 for others, whose activation saturates at the balanced amplitudes "
        "that a strong penalty asks for; 0 for the model module)",
        at_least=0.0,
    )
    margin_penalty: float = setting(
        0.0, "weight of relu(1 - stability margin) in the objective; the published protocol used 0.01", at_least=0.0
    )
    # redundant modes
    merge_redundant: bool = setting(
        True,
        "after training, merge redundant modes into the strongest one: nearly the same function without dead modes, "
        "whose leftover rates would limit the stability radius",
    )
    merge_tolerance: float = setting(
        1e-3,
        "modes are redundant as long as the validated objective (loss and penalties) without all of them is at most "
        "this fraction higher",
        at_least=0.0,
        below=1.0,
    )
    weights: str = setting(
        "",
        "file of the initial weights of all seeds, safetensors or by torch.save (empty: the model draws its own); in "
        "the workspace, or an absolute path. The file's content counts, not its place",
        cosmetic=True,
    )
    # validation
    validate_every: int = setting(50, "steps between validations; the best validated state is kept", at_least=1)
    validation_size: int = setting(4096, "sequences of the fixed validation set", at_least=1)
    select: str = setting(
        "objective",
        "which validated state is kept: the one of least objective (loss and penalties) or of least loss alone",
        choices=("objective", "loss"),
    )
    # stopping
    patience: int = setting(0, "stop after so many validations without improvement (0: never stop early)", at_least=0)
    stop_below: float = setting(0.0, "stop a seed whose validation loss is below this (0: never)", at_least=0.0)
    smallest_steps: int = setting(0, "steps before stop_below may stop a seed", at_least=0)
    # precision and checkpoints
    checkpoint_every: int = setting(
        500, "steps between checkpoints, from which an interrupted pack continues", at_least=1, cosmetic=True
    )
    dtype: str = setting("float64", "float64, or float32 for screening only", choices=("float64", "float32"))

    @property
    def end(self) -> int:
        """Optimizer steps after which training ends: ``until``, or all of them."""
        return min(self.until, self.steps) if self.until else self.steps

    @property
    def weights_file(self) -> Path | None:
        """The file of the initial weights; None where the model draws them."""
        if not self.weights:
            return None
        places = [folder / self.weights for folder in (*registry.folders(), Path.cwd())]
        return next((place for place in places if place.is_file()), places[0])

    def shrinking(self) -> list[tuple[str, float | None]]:
        """The settings that move weights without a gradient of the loss, each with its value."""
        decays = [
            (f"groups.{field.name}.weight_decay", getattr(self.groups, field.name).weight_decay)
            for field in dataclasses.fields(self.groups)
        ]
        return [
            (name, getattr(self, name)) for name in ("amplitude_penalty", "margin_penalty", "weight_decay")
        ] + decays

    def problems(self) -> Iterable[str]:
        if (file := self.weights_file) is not None and not file.is_file():
            yield f"weights is {self.weights!r}, and there is no such file ({file}). Give the path of a file of weights"
        every = f"a multiple of validate_every ({self.validate_every})"
        if self.until and self.until >= self.steps:
            yield f"until ({self.until}) must be smaller than steps ({self.steps}); 0 trains for all of them"
        if self.warmup and self.warmup >= self.steps:
            yield f"warmup ({self.warmup}) must be smaller than steps ({self.steps}), or the full rate is never reached"
        if self.until % self.validate_every:
            yield f"until ({self.until}) must be {every}, because the best validated state is measured"
        turned = [turn.until for turn in self.turns]
        if turned != sorted(set(turned)):
            yield f"turns must end at larger and larger steps, got {', '.join(map(str, turned))}"
        if turned and turned[-1] >= self.end:
            yield f"turns must end before the training does (step {self.end}), got {turned[-1]}"
        if odd := [step for step in turned if step % self.validate_every]:
            yield f"turns must end at {every}, got {', '.join(map(str, odd))}"
        yield from self._unused_problems()

    def _unused_problems(self) -> Iterable[str]:
        """Settings of another optimizer than the one that is named."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in ("beta1", "beta2") if self.optimizer == "rmsprop" else ("alpha",):
            if (value := getattr(self, name)) != defaults[name]:
                users = "rmsprop" if name == "alpha" else "adamw or adam"
                yield f"{name} is {value:g}, but {self.optimizer} has none: leave it out, or set optimizer to {users}"


def groups_by_pattern(training: TrainingConfig) -> bool:
    """Whether weights have settings of the optimizer by patterns of their names."""
    return bool(training.parameter_groups)
