"""The configuration of one trial, as frozen dataclasses.

YAML keys are the field names (``from_`` is written ``from``: the underscore only avoids Python's keyword).
A class may define ``problems(self) -> Iterable[str]`` for rules about several fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from memsweep import registry
from memsweep.config.core.fields import setting
from memsweep.config.schema.batch_loss import trains_over_sequences
from memsweep.config.schema.training import CLIP, LINEAR_PENALTY, NONLINEAR_PENALTY, SCHEDULE, TrainingConfig


class TaskConfig(Protocol):
    """The Config of a registered task, as the engine sees it; its other fields are the task's own."""

    @property
    def name(self) -> str:
        """The name under which the task is registered."""

    def __hash__(self) -> int: ...


class ModelConfig(Protocol):
    """The Config of a registered model, as the engine sees it; its other fields are the model's own."""

    @property
    def name(self) -> str:
        """The name under which the model is registered."""

    @property
    def width(self) -> int:
        """Hidden states of a layer."""

    def __hash__(self) -> int: ...


DRIFT, EXCESS, ERROR = "drift", "excess", "error"
"""The readings of a radius (``perturbation.reading``)."""
TARGET, METRIC, SELF = "target", "metric", "self"
"""The references of a change (``perturbation.reference``)."""
THRESHOLDS = (0.01, 0.03, 0.10)
"""Changes, as fractions of the zero predictor's loss or of another reference, at which a radius is read."""


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
    """How far the outputs of a trained model move when its weights move by at most a radius, and how it is searched."""

    radii: RadiiConfig = setting(doc="the radii at which the error is measured", factory=RadiiConfig)
    norm: str = setting(
        "spectral",
        "ball per weight tensor: spectral (matrices spectral, vectors Euclidean, diagonal recurrent weights "
        "entrywise: the paper's norm; complex weights as complex numbers) or entrywise (largest entry: the published "
        "code's norm; the real and the imaginary part of a number are entries)",
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
    starts: int = setting(
        4,
        "random starts of the search, in addition to the structured ones; four times as many in closed form",
        at_least=0,
    )
    ascent_steps: int = setting(16, "ascent steps per start; half as many in each pass along the radii", at_least=0)
    stronger_every: int = setting(
        5,
        "a search of several times the effort runs on the first three of each so many seeds (0, 1, 2, 5, 6, 7, ...), "
        "and measures what the usual search misses; 0: on none",
        at_least=0,
    )
    repeats: int = setting(30, "draws per radius of the random method", at_least=1)
    seed: int = setting(0, "seed of the random starts and draws", at_least=0, at_most=2**31)
    error: str = setting(
        "auto",
        "exact (expected loss in closed form: linear models on tasks that know it), sampled (loss on the test set), "
        "or auto (exact where it exists)",
        choices=("auto", "exact", "sampled"),
    )
    test_size: int = setting(12_800, "sequences of the fixed test set", at_least=1)
    reading: str = setting(
        DRIFT,
        "what radii are read from: drift (distance of the outputs from the model's own, in the norm of the error; "
        "excess where that is no squared error), excess (growth of the error over the unperturbed one) or error "
        "(E(radius) itself, fit error included, like the published curves)",
        choices=(DRIFT, EXCESS, ERROR),
    )
    reference: str = setting(
        TARGET,
        "what a change is held against: target (the loss of a predictor that says 0, of models that fit their target), "
        "metric (right answers: of models that solve the task, how many more answers are wrong at the worst push found "
        "for the loss) or self (the variance of the model's own outputs: no target, no fit; it says what moves the "
        "function, and nothing about a target)",
        choices=(TARGET, METRIC, SELF),
    )
    reference_metric: str | None = setting(
        None, "the task's metric that reference metric judges by; left out: its first one", added=True
    )
    asked_measures: tuple[Any, ...] = setting((), "the Configs of the measures that are asked for", opens="measure")

    def problems(self) -> Iterable[str]:
        if refers_elsewhere(self) and self.reading != DRIFT:
            yield f"reading is {self.reading}, which is of the target: leave it out with reference {self.reference}"
        if self.reference_metric is not None and self.reference != METRIC:
            yield (
                f"reference_metric is {self.reference_metric}, but reference is {self.reference}: leave it out, or use "
                "reference metric"
            )
        if len(set(self.balls)) != len(self.balls):
            yield f"balls has a value twice: {', '.join(self.balls)}"


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
        "the carried number of the trial's summary (medians over the seeds)",
        choices=("validation_loss", "error", "margin"),
    )
    into: str = setting("training.stop_below", "field that takes the carried value")
    factor: float = setting(1.0, "what the carried value is multiplied by", above=0.0)
    first: float = setting(doc="value of that field for the first trial of a chain; carried from nowhere, not scaled")
    earlier: tuple[bool | int | float | str, ...] = setting(
        (), "values of the axis before this trial's, in order; follows from the grid and is not written in a study"
    )


def usual_training(task: TaskConfig, model: ModelConfig, perturbation: PerturbationConfig) -> dict[str, Any]:
    """The settings of training that follow from the other sections where a study leaves them out, by their name.

    The amplitude penalty belongs to the verdict on a functional: redundant modes would move its radius. Elsewhere it
    would change what is learned, so the objective is the task's loss alone.
    """
    traits = registry.get(registry.MODEL, model.name).traits(model)
    if traits.trains_plainly:
        return {"amplitude_penalty": 0.0, "clip": 0.0, "schedule": "constant"}
    judged = registry.get(registry.TASK, task.name).functional and perturbs(perturbation)
    penalty = (LINEAR_PENALTY if traits.linear else NONLINEAR_PENALTY) if judged else 0.0
    return {"amplitude_penalty": penalty, "clip": CLIP, "schedule": SCHEDULE}


@dataclass(frozen=True, kw_only=True)
class TrialConfig:
    """The settings of one trial. Its numbers depend on them and on the code alone; its identity is a hash of both."""

    task: TaskConfig = setting(doc="the task that is learned", registered="task")
    model: ModelConfig = setting(doc="what learns it", registered="model")
    training: TrainingConfig = setting(doc="how it is fitted", factory=TrainingConfig)
    perturbation: PerturbationConfig = setting(doc="how its stability is measured", factory=PerturbationConfig)
    chain: ChainConfig | None = setting(None, "the place in a chain of trials; null: the trial depends on no other")

    def __post_init__(self) -> None:
        usual = usual_training(self.task, self.model, self.perturbation)
        left_out = {name: value for name, value in usual.items() if getattr(self.training, name) is None}
        if left_out:
            object.__setattr__(self, "training", dataclasses.replace(self.training, **left_out))

    @property
    def has_closed_form(self) -> bool:
        """Whether the expected loss of this model on this task is known exactly, without sampling."""
        task = registry.get(registry.TASK, self.task.name)
        model = registry.get(registry.MODEL, self.model.name)
        return bool(task.knows_population and model.traits(self.model).linear)

    @property
    def trains_in_closed_form(self) -> bool:
        """Whether models enter training by their responses: a rule that goes forward in time needs each step."""
        if trains_over_sequences(self):
            return False
        return self.has_closed_form and not registry.get(registry.RULE, self.training.rule).forward

    def problems(self) -> Iterable[str]:
        for asked in (*asked_of(self.perturbation), *asked_of(self.training)):
            yield from registry.get(registry.MEASURE, asked.name).problems(self)
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


def asked_of(section: PerturbationConfig | TrainingConfig) -> list[Any]:
    """The Configs of the measures that are asked for there, by name."""
    return [each for each in section.asked_measures if registry.get(registry.MEASURE, each.name).is_asked(each)]


def perturbs(perturbation: PerturbationConfig) -> bool:
    """Whether errors are measured under perturbation: in a ball, or by a measure."""
    measures = (registry.get(registry.MEASURE, each.name) for each in asked_of(perturbation))
    return bool(perturbation.balls) or any(measure.perturbs for measure in measures)


def asks_measures(trial: TrialConfig) -> bool:
    """Whether a trial asks for measures beside the perturbation error."""
    return bool(asked_of(trial.perturbation))


def refers_elsewhere(perturbation: PerturbationConfig) -> bool:
    """Whether radii are held against another reference than the target."""
    return perturbation.reference != TARGET


def mixes_models(model: ModelConfig) -> bool:
    """Whether models of other configs may share a pack with such a model: one object then computes for all of them."""
    return bool(registry.get(registry.MODEL, model.name).traits(model).pack_fields)
