"""The configuration of one trial and of one sweep, as frozen dataclasses.

YAML keys are the field names (``from_`` is written ``from``: the underscore only avoids Python's keyword).
A class may define ``problems(self) -> Iterable[str]`` for what no single field can say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memsweep import registry
from memsweep.config.claims.types import Claims
from memsweep.config.core.fields import setting
from memsweep.config.core.problems import sentence
from memsweep.config.schema.groups import GroupsConfig
from memsweep.config.schema.search import ConfirmConfig, Search

LINEAR_PENALTY, NONLINEAR_PENALTY = 1e-2, 1e-3


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Settings of a stretch of training that lie before the present ones: a row's lineage, part of its identity."""

    until: int = setting(doc="step before which they held", at_least=1)
    learning_rate: float = setting(doc="the optimizer's step size", above=0.0, at_most=1e4)
    weight_decay: float = setting(doc="the optimizer's weight decay", at_least=0.0)
    clip: float = setting(doc="largest gradient norm of one replica (0: no limit)", at_least=0.0)
    amplitude_penalty: float = setting(doc="weight of |encoder|^2 + |readout|^2", at_least=0.0)
    margin_penalty: float = setting(doc="weight of relu(1 - stability margin)", at_least=0.0)


TURNING = tuple(field.name for field in dataclasses.fields(Turn) if field.name != "until")
"""Fields of training that can change on the way."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How the replicas of a trial are fitted. Defaults: the fit that was calibrated for stability verdicts."""

    seeds: int = setting(5, "replicas of the trial; each has its own initial weights", at_least=1, at_most=10_000)
    first_seed: int = setting(0, "the replicas are seeds first_seed, first_seed + 1, ...", at_least=0, at_most=2**31)
    data_seed: int = setting(0, "seed of the task's train, validation and test streams", at_least=0, at_most=2**31)
    steps: int = setting(2500, "optimizer steps", at_least=0)
    batch_size: int = setting(512, "sequences per step", at_least=1)
    train_size: int = setting(
        0, "sequences of a fixed training set, shuffled every epoch (0: fresh sequences at every step)", at_least=0
    )
    rule: str = setting(
        "bptt",
        "how gradients are computed: bptt (backpropagation through time), or a rule that goes forward in time; see "
        "memsweep list rules",
        named=registry.RULE,
    )
    alignment_every: int = setting(
        0,
        "steps between comparisons of the rule's gradient with that of bptt, layer by layer (0: none; bptt itself has "
        "none to make); costs a gradient each",
        at_least=0,
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
    until: int = setting(
        0,
        "step after which training ends early although steps, over which the learning rate falls, are more (0: all "
        "steps); schedulers of a search set it",
        at_least=0,
    )
    turns: tuple[Turn, ...] = setting(
        (), "settings of earlier steps, under population-based training, which sets them; in order"
    )
    schedule: str = setting(
        "cosine",
        "learning rate over the steps: cosine (down to 0), constant, or plateau (times plateau_factor when the "
        "validation loss has not improved by 0.01 % for more than plateau_patience validations)",
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
        0.0, "stop a replica whose learning rate a plateau has brought below this (0: never)", at_least=0.0
    )
    weight_decay: float = setting(0.0, "the optimizer's weight decay", at_least=0.0)
    clip: float = setting(
        0.5, "largest gradient norm of one replica; larger gradients are scaled down (0: no limit)", at_least=0.0
    )
    amplitude_penalty: float | None = setting(
        None,
        "weight of |encoder|^2 + |readout|^2 in the objective: prunes redundant modes, whose unidentified rates "
        "would otherwise move the stability radius with width (left out: 0.01 for linear models, 0.001 for others, "
        "whose activation saturates at the balanced amplitudes that a strong penalty asks for)",
        at_least=0.0,
    )
    margin_penalty: float = setting(
        0.0, "weight of relu(1 - stability margin) in the objective; the published protocol used 0.01", at_least=0.0
    )
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
    validate_every: int = setting(50, "steps between validations; the best validated state is kept", at_least=1)
    validation_size: int = setting(4096, "sequences of the fixed validation set", at_least=1)
    select: str = setting(
        "objective",
        "which validated state is kept: the one of least objective (loss and penalties) or of least loss alone",
        choices=("objective", "loss"),
    )
    patience: int = setting(0, "stop after so many validations without improvement (0: never stop early)", at_least=0)
    stop_below: float = setting(0.0, "stop a replica whose validation loss is below this (0: never)", at_least=0.0)
    smallest_steps: int = setting(0, "steps before stop_below may stop a replica", at_least=0)
    checkpoint_every: int = setting(
        500, "steps between checkpoints, from which an interrupted pack continues", at_least=1, cosmetic=True
    )
    dtype: str = setting("float64", "float64, or float32 for screening only", choices=("float64", "float32"))

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", registry.rule_name(self.rule))  # one name for one thing, in identities too

    @property
    def end(self) -> int:
        """Optimizer steps after which training ends: ``until``, or all of them."""
        return min(self.until, self.steps) if self.until else self.steps

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
        every = f"a multiple of validate_every ({self.validate_every})"
        if self.until and self.until >= self.steps:
            yield f"until ({self.until}) must be smaller than steps ({self.steps}); 0 trains for all of them"
        if self.warmup and self.warmup >= self.steps:
            yield f"warmup ({self.warmup}) must be smaller than steps ({self.steps}), or the full rate is never reached"
        if self.until % self.validate_every:
            yield f"until ({self.until}) must be {every}: what is measured then is the best validated state"
        turned = [turn.until for turn in self.turns]
        if turned != sorted(set(turned)):
            yield f"turns must end at larger and larger steps, got {', '.join(map(str, turned))}"
        if turned and turned[-1] >= self.end:
            yield f"turns must end before the training does (step {self.end}), got {turned[-1]}"
        if odd := [step for step in turned if step % self.validate_every]:
            yield f"turns must end at {every}, got {', '.join(map(str, odd))}"
        yield from self._unused()

    def _unused(self) -> Iterable[str]:
        """Settings of another optimizer than the one that is named."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in ("beta1", "beta2") if self.optimizer == "rmsprop" else ("alpha",):
            if (value := getattr(self, name)) != defaults[name]:
                users = "rmsprop" if name == "alpha" else "adamw or adam"
                yield f"{name} is {value:g}, but {self.optimizer} has none: leave it out, or set optimizer to {users}"


@dataclass(frozen=True, kw_only=True)
class RadiiConfig:
    """A geometric grid of perturbation radii, the smallest and the largest included; radius 0 is always added."""

    from_: float = setting(1e-4, "smallest radius", above=0.0)
    to: float = setting(3.0, "largest radius", above=0.0)
    count: int = setting(30, "number of radii", at_least=2, at_most=10_000)

    def problems(self) -> Iterable[str]:
        if self.from_ >= self.to:
            yield f"from ({self.from_}) must be smaller than to ({self.to})"


@dataclass(frozen=True, kw_only=True)
class PerturbationConfig:
    """How the perturbation error E_m(radius) of a trained model is measured."""

    radii: RadiiConfig = setting(doc="the radii at which the error is measured", factory=RadiiConfig)
    norm: str = setting(
        "spectral",
        "ball per weight tensor: spectral (matrices spectral, vectors Euclidean, diagonal recurrent weights "
        "entrywise: the paper's norm) or entrywise (largest entry: the published code's norm)",
        choices=("spectral", "entrywise"),
    )
    balls: tuple[str, ...] = setting(
        ("recurrent", "all"),
        "which weights move: recurrent; weights (encoder and readout too, balanced first); all (biases, too); an empty "
        "list measures the unperturbed loss alone",
        choices=("recurrent", "weights", "all"),
    )
    balance: bool = setting(
        True,
        "bring encoder and readout of a linear model to equal size first, where both move: the radius is then "
        "one of the function; false leaves the weights as trained, like the published code",
    )
    projected: bool = setting(
        False,
        "put clamped raw weights (parameterization relu) in the place of the rates and take the clamp away before "
        "the weights move, like the published code",
    )
    method: str = setting(
        "worst_case",
        "worst_case (projected ascent from structured and random starts), random (the largest of some draws on the "
        "sphere; a weak lower bound), or random_push (random, but the raw rates all fall by the radius: how the "
        "published curves of 2023 were made)",
        choices=("worst_case", "random", "random_push"),
    )
    starts: int = setting(4, "random starts of the ascent, beside the structured ones", at_least=0)
    ascent_steps: int = setting(16, "ascent steps per start", at_least=0)
    repeats: int = setting(30, "draws per radius of the random method", at_least=1)
    seed: int = setting(0, "seed of the random starts and draws", at_least=0, at_most=2**31)
    error: str = setting(
        "auto",
        "exact (expected loss in closed form: linear models on tasks that know it), sampled (loss on the test set), "
        "or auto (exact where it exists)",
        choices=("auto", "exact", "sampled"),
    )
    test_size: int = setting(12_800, "sequences of the fixed test set", at_least=1)

    def problems(self) -> Iterable[str]:
        if len(set(self.balls)) != len(self.balls):
            yield f"balls names one ball twice: {', '.join(self.balls)}"


@dataclass(frozen=True, kw_only=True)
class ResourcesConfig:
    """What one pack of trials asks of the cluster; changes how fast numbers come, and their last bits at most."""

    cpus: float = setting(1.0, "CPU cores per process; each process runs one thread per core asked", above=0.0)
    gpus: float = setting(
        0.0,
        "share of a GPU per pack, in one process (0: computed on CPUs); where a probe finds that a pack needs more of "
        "the card's memory, it gets more",
        at_least=0.0,
        at_most=1.0,
    )
    workers: int = setting(1, "processes that run one pack together, on one node or several", at_least=1)
    gpus_per_worker: float = setting(
        0.0, "share of a GPU for each of several workers (0: computed on CPUs)", at_least=0.0, at_most=1.0
    )
    strategy: str = setting(
        "replicas",
        "what several workers share out: the replicas, with equal bits, or the data of each step, whose gradients "
        "are summed over all of them, equal but for rounding",
        choices=("replicas", "data"),
    )
    max_concurrent: int = setting(0, "packs that run at once (0: as many as the resources allow)", at_least=0)
    time_limit: float = setting(
        86_400.0,
        "seconds that a trial may take (0: no limit); trials that run together in a pack have their limits together, "
        "and where they exceed it each runs alone, so that only the one that hangs fails",
        at_least=0.0,
        at_most=1e8,
    )
    memory: float = setting(
        0.0,
        "GiB that a pack may ask for on top of its bare process (0: no limit): one that asks for more fails by itself "
        "before it takes the node's memory from others; not with --inline",
        at_least=0.0,
        at_most=1e6,
    )

    def problems(self) -> Iterable[str]:
        if self.workers > 1 and self.gpus:
            yield (
                f"gpus is {self.gpus:g} with {self.workers} workers: it is for packs in one process. Set gpus to 0 and "
                "gpus_per_worker to the share of each worker"
            )
        if self.workers == 1 and self.gpus_per_worker:
            yield (
                f"gpus_per_worker is {self.gpus_per_worker:g} with one worker: set gpus instead, or workers to at "
                "least 2"
            )

    def sharing_problems(self, trials: Iterable[TrialConfig]) -> list[str]:
        """Why several workers cannot share out the data of these trials, each reason once."""
        return list(dict.fromkeys(text for trial in trials for text in self._sharing(trial))) if self.shards > 1 else []

    def _sharing(self, trial: TrialConfig) -> Iterator[str]:
        if trial.training.objective == "population":
            yield sentence(
                "resources.strategy",
                "data shares out the sequences of a step, and with training.objective: population there are none. Take "
                "strategy: replicas",
            )
        for name in ("batch_size", "validation_size"):
            if (size := getattr(trial.training, name)) < self.workers:
                rule = f"must be at least resources.workers, {self.workers}, which share its sequences out"
                yield sentence(f"training.{name}", f"{rule} (strategy: data)", str(size))
        for kind, config in ((registry.TASK, trial.task), (registry.MODEL, trial.model)):
            if reason := registry.get(kind, config.name).sharing_problem(config):
                yield sentence("resources.strategy", reason)

    @property
    def card(self) -> float:
        """The share of a GPU that each process gets."""
        return self.gpus_per_worker if self.workers > 1 else self.gpus

    @property
    def device(self) -> str:
        """Type of the device that computes: ``cpu`` or ``cuda``."""
        return "cuda" if self.card else "cpu"

    @property
    def shards(self) -> int:
        """Parts in which the data of a training step are computed, whose sum rounds otherwise than one part's."""
        return self.workers if self.strategy == "data" else 1


@dataclass(frozen=True, kw_only=True)
class ChainConfig:
    """A value carried along an ordered axis: each trial takes a number from the result of the one before it.

    Trials that differ in ``along`` alone form a chain, in the order in which the grid lists that axis. The field
    ``into`` of a trial becomes factor x (``carry`` of its predecessor's summary); the chain's first trial takes
    ``first``. The published protocol of arXiv 2305.19190 stops each width at half the loss of the width before.
    """

    along: str = setting(doc="axis of the grid that orders the chain: model.width, say")
    carry: str = setting(
        "validation_loss",
        "what is carried, a number of the trial's summary (medians over the replicas)",
        choices=("validation_loss", "error", "margin"),
    )
    into: str = setting("training.stop_below", "field that takes the carried value")
    factor: float = setting(1.0, "what the carried value is multiplied by", above=0.0)
    first: float = setting(doc="value of that field for the first trial of a chain; carried from nowhere, not scaled")
    earlier: tuple[bool | int | float | str, ...] = setting(
        (), "values of the axis before this trial's, in order; follows from the grid and is not written in a study"
    )


@dataclass(frozen=True, kw_only=True)
class TrialConfig:
    """Everything that decides a trial's numbers: its identity is a hash of this and of the code."""

    task: Any = setting(doc="what is learnt", registered="task")
    model: Any = setting(doc="what learns it", registered="model")
    training: TrainingConfig = setting(doc="how it is fitted", factory=TrainingConfig)
    perturbation: PerturbationConfig = setting(doc="how its stability is measured", factory=PerturbationConfig)
    chain: ChainConfig | None = setting(None, "the place in a chain of trials; null: the trial depends on no other")

    def __post_init__(self) -> None:
        if self.training.amplitude_penalty is None:
            model = registry.get(registry.MODEL, self.model.name)
            penalty = LINEAR_PENALTY if model.traits(self.model).linear else NONLINEAR_PENALTY
            object.__setattr__(self, "training", dataclasses.replace(self.training, amplitude_penalty=penalty))

    @property
    def has_closed_form(self) -> bool:
        """Whether the expected loss of this model on this task is known exactly, without sampling."""
        task = registry.get(registry.TASK, self.task.name)
        model = registry.get(registry.MODEL, self.model.name)
        return bool(task.knows_population and model.traits(self.model).linear)

    @property
    def trains_in_closed_form(self) -> bool:
        """Whether batches enter training by statistics alone: a rule that goes forward in time needs each step."""
        return self.has_closed_form and not registry.get(registry.RULE, self.training.rule).forward

    def problems(self) -> Iterable[str]:
        for kind, part in ((registry.MODEL, self.model), (registry.TASK, self.task)):
            yield from registry.get(kind, part.name).problems(self)
        yield from registry.get(registry.RULE, self.training.rule).problems(self)
        if self.has_closed_form:
            return
        pair = f"the task {self.task.name} with the model {self.model.name} has no closed form of its expected loss"
        if self.training.objective == "population":
            yield f"training.objective is population, but {pair}: use minibatch"
        if self.perturbation.error == "exact":
            yield f"perturbation.error is exact, but {pair}: use sampled, or auto"


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """One study: the base trial, the grid over it, and the resources of a pack.

    Attributes:
        name: the study's name as its author wrote it (any text; the results folder escapes it).
        rows: every trial of the grid, in the order of the axes, the last axis fastest.
        grid: the axes as they were written: dotted path -> values.
        resources: what a pack asks for.
        description: the comment lines at the top of the study file.
        claims: what was published about these conditions, for the report; None where the study claims nothing.
        protocol: the preset under the study's own settings (memsweep.config.schema.protocols).
        search: what is searched; the rows are then the cells in which, or over which, it is searched.
        confirm: how the winners are measured anew; None where they are not.
    """

    name: str
    rows: tuple[TrialConfig, ...]
    grid: Mapping[str, tuple[Any, ...]]
    resources: ResourcesConfig
    description: str = ""
    claims: Claims | None = None
    protocol: str = "matched"
    search: Search | None = None
    confirm: ConfirmConfig | None = None
