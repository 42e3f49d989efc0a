"""The configuration of one trial and of one sweep, as frozen dataclasses.

YAML keys are the field names (``from_`` is written ``from``: the underscore only avoids Python's keyword).
A class may define ``problems(self) -> Iterable[str]`` for what no single field can say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from memsweep import registry
from memsweep.config.fields import setting


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How the replicas of a trial are fitted. Defaults: the fit that was calibrated for stability verdicts."""

    seeds: int = setting(5, "replicas of the trial; each has its own initial weights", at_least=1, at_most=10_000)
    first_seed: int = setting(0, "the replicas are seeds first_seed, first_seed + 1, ...", at_least=0, at_most=2**31)
    data_seed: int = setting(0, "seed of the task's train, validation and test streams", at_least=0, at_most=2**31)
    steps: int = setting(2500, "optimizer steps", at_least=0)
    batch_size: int = setting(512, "fresh sequences per step", at_least=1)
    objective: str = setting(
        "minibatch",
        "what the gradient is of: minibatch (the loss on fresh sequences) or population (its exact expectation; "
        "linear models on tasks that know it; no sampling noise, so a different objective)",
        choices=("minibatch", "population"),
    )
    learning_rate: float = setting(0.01, "AdamW's step size at the start", above=0.0, at_most=1e4)
    schedule: str = setting(
        "cosine", "learning rate over the steps: cosine (down to 0) or constant", choices=("cosine", "constant")
    )
    weight_decay: float = setting(0.0, "AdamW's decoupled weight decay", at_least=0.0)
    clip: float = setting(0.5, "largest gradient norm of one replica; larger gradients are scaled down", above=0.0)
    amplitude_penalty: float = setting(
        1e-2,
        "weight of |encoder|^2 + |readout|^2 in the objective: prunes redundant modes, whose unidentified rates "
        "would otherwise move the stability radius with width",
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
    patience: int = setting(0, "stop after so many validations without improvement (0: never stop early)", at_least=0)
    checkpoint_every: int = setting(
        500, "steps between checkpoints, from which an interrupted pack continues", at_least=1, cosmetic=True
    )
    dtype: str = setting("float64", "float64, or float32 for screening only", choices=("float64", "float32"))


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
        "which weights move: recurrent, or all (encoder and readout balanced first, biases too)",
        choices=("recurrent", "all"),
    )
    method: str = setting(
        "worst_case",
        "worst_case (projected ascent from structured and random starts) or random (the largest of some draws on "
        "the sphere, the published protocol; a weak lower bound)",
        choices=("worst_case", "random"),
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
        if not self.balls:
            yield "balls is empty: name recurrent, all, or both"
        if len(set(self.balls)) != len(self.balls):
            yield f"balls names one ball twice: {', '.join(self.balls)}"


@dataclass(frozen=True, kw_only=True)
class ResourcesConfig:
    """What one pack of trials asks of the cluster; changes how fast numbers come, never the numbers."""

    cpus: float = setting(1.0, "CPU cores per pack; each process runs one thread per core asked", above=0.0)
    gpus: float = setting(0.0, "GPUs per pack; must be 0 so far: the engine computes on CPUs", at_least=0.0)
    max_concurrent: int = setting(0, "packs that run at once (0: as many as the resources allow)", at_least=0)

    def problems(self) -> Iterable[str]:
        if self.gpus:
            yield f"gpus is {self.gpus:g}, but the engine computes on CPUs so far, and a card would idle: set it to 0"


@dataclass(frozen=True, kw_only=True)
class TrialConfig:
    """Everything that decides a trial's numbers: its identity is a hash of this and of the code."""

    task: Any = setting(doc="what is learnt", registered="task")
    model: Any = setting(doc="what learns it", registered="model")
    training: TrainingConfig = setting(doc="how it is fitted", factory=TrainingConfig)
    perturbation: PerturbationConfig = setting(doc="how its stability is measured", factory=PerturbationConfig)

    @property
    def has_closed_form(self) -> bool:
        """Whether the expected loss of this model on this task is known exactly, without sampling."""
        task = registry.get(registry.TASK, self.task.name)
        model = registry.get(registry.MODEL, self.model.name)
        return bool(task.knows_population and model.linear)

    def problems(self) -> Iterable[str]:
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
    """

    name: str
    rows: tuple[TrialConfig, ...]
    grid: Mapping[str, tuple[Any, ...]]
    resources: ResourcesConfig
    description: str = ""
