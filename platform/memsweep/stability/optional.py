"""Measures that a study may ask for beside the perturbation error: what each of them says of itself to the engine.

A measure is a class with ``@register_measure(name)``, in a package of its own below ``memsweep.measures`` or in an
installed distribution (entry-point group ``memsweep.plugins``). A study asks for it with
``perturbation: {<name>: {<fields>}}``; the fields of a flat one stand in the section itself. The engine loops over what
a trial asks for, the store over the tables that are registered, the report over what was measured: none of them names
a measure.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from memsweep import registry
from memsweep.config.core.fields import AFTER, DURING
from memsweep.config.schema.trial import asked_of
from memsweep.errors import one_of

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.config.schema.training import TrainingConfig
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.data.task import Task
    from memsweep.learning.ensemble.replicas import Ensemble
    from memsweep.learning.loss.base import TaskLoss
    from memsweep.learning.state.trained import TrainedEnsemble
    from memsweep.learning.training.observer import Observer
    from memsweep.models.base import Model, Weights
    from memsweep.stability.measure import Measurement

    Measured = dict[int, tuple[int, Measurement]]
    """Row of each real replica of an ensemble -> the position of its trial in the pack, and its measurement."""


CURVES = "curves"
"""The table of errors against radii, to which a measure may add curves of its own."""

_ENGINES = frozenset(
    {
        *(
            CURVES,
            "replicas",
            "metrics",
            "memory",
            "history",
            "records",
            "weights",
            "failures",
            "checkpoints",
            "states",
        ),
        *("journal", "lease", "search", "decide", "report", "judged", "crash_reports", "given"),
    }
)
"""The tables of the engine, and the folders beside them in the folder of a study."""
_TYPES = ("string", "int64", "float64", "bool")
_SIZES = ("horizon", "width")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Subject:
    """Subject replicas that are measured.

    Attributes:
        pack: the replicas, those that diverged among them.
        task_loss: of their errors.
        tasks: of the trials of the pack, in order.
        config: any trial of the pack: they share all fields that a measure may use.
    """

    pack: TrainedEnsemble
    task_loss: TaskLoss[Any]
    tasks: Sequence[Task]
    config: TrialConfig


@dataclass(frozen=True)
class Effort:
    """What a measurement of one replica takes, for the plan.

    Attributes:
        trial: that is measured.
        horizon: of its task.
        search: ball, radii -> evaluations of a search for the worst push at so many radii.
    """

    trial: TrialConfig
    horizon: float
    search: Callable[[str, int], float]


class Measure(ABC):
    """What is measured of trained replicas where a trial asks for it.

    An instance measures the replicas of one ensemble. The first paragraph of the docstring of a subclass says what is
    measured; ``memsweep describe perturbation`` prints it. Example: ``memsweep.measures.memory_over_inputs``.

    Args:
        asked: the measure's Config in the trials.
        subject: what is measured.

    Attributes:
        when: it measures, after training or in it (``TrainingMeasure``).
        table: name of the table of its rows.
        columns: name -> type (``string``, ``int64``, ``float64``, ``bool``) of its columns, beside those that each
            table has: the trial's identity, horizon and width, and the seed.
        grows: columns whose growth with width and horizon is reported -> what each of them is, in words.
        version, migrations: of the table, as of ``memsweep.sweep.store.form.Form``.
        curves: names, in the column ``ball``, of its rows where its table is ``CURVES``; it has no other columns then.
        answering: those of them that answer a study: the loss of such a condition is no answer of its own.
        is_flat: the fields of its Config stand in the section itself, and not below its name.
        perturbs: it measures errors under perturbation, for which a linear functional is fitted as for a ball.
        needs_derivatives: by the inputs, which a model of ids does not have.
        has_sizes: each row of the table has the horizon and the width of its trial, too.
        is_tracked: the table is a file of the trial's run in a tracking server, too.
        section: ``module:function``, which makes from ``memsweep.report.analysis.contents.Contents`` the
            ``memsweep.report.values.section.Section`` of a study that has rows of the table, or several of them. One
            without charts and without rows in its table is not shown, nor are its glances.
    """

    Config: ClassVar[type]
    when: ClassVar[str] = AFTER
    table: ClassVar[str]
    columns: ClassVar[Mapping[str, str]]
    grows: ClassVar[Mapping[str, str]] = {}
    version: ClassVar[int] = 1
    migrations: ClassVar[Mapping[int, Any]] = {}
    curves: ClassVar[frozenset[str]] = frozenset()
    answering: ClassVar[frozenset[str]] = frozenset()
    is_flat: ClassVar[bool] = False
    perturbs: ClassVar[bool] = False
    needs_derivatives: ClassVar[bool] = False
    has_sizes: ClassVar[bool] = True
    is_tracked: ClassVar[bool] = False
    section: ClassVar[str]

    @classmethod
    def table_problem(cls) -> str | None:
        """Why the registry refuses a measure whose table cannot be stored: the end of a sentence. None: nothing."""
        if absent := [name for name in ("table", "columns", "section") if not hasattr(cls, name)]:
            return f"lacks {', '.join(absent)}: define each in the class as the docstring of {__name__}.Measure says."
        if cls.table == CURVES and cls.curves:
            return None
        if cls.table in _ENGINES:
            return f"has the table {cls.table!r}, which is the engine's: call it otherwise."
        if not _NAME.fullmatch(cls.table):
            return f"has the table {cls.table!r}: its name must be of a-z, 0-9 and _, and begin with a letter."
        others = (registry.get(registry.MEASURE, name) for name in registry.names(registry.MEASURE))
        if not registry.is_own(cls) and (same := [each for each in others if _shares_table(cls, each)]):
            return (
                f"has the table {cls.table!r}, which is that of the measure {same[0].Config.name!r}: call it otherwise."
            )
        if taken := [name for name in ("identity", "seed", *(_SIZES if cls.has_sizes else ())) if name in cls.columns]:
            return f"has the column {taken[0]!r}, which each table has already: leave it out, or call it otherwise."
        if wrong := [f"{name} {kind}" for name, kind in cls.columns.items() if kind not in _TYPES]:
            return f"has columns of types that no table has ({', '.join(wrong)}): there are {one_of(_TYPES)}."
        if strange := [name for name in cls.grows if name not in cls.columns]:
            return f"grows names {strange[0]!r}, which is none of its columns: {one_of(cls.columns)}."
        return None

    def __init__(self, asked: Any, subject: Subject) -> None:
        self.asked, self.subject = asked, subject

    @classmethod
    def is_asked(cls, asked: Any) -> bool:
        """Whether a Config asks for anything: that of a flat measure may hold settings alone."""
        return True

    @classmethod
    def own(cls, table: pd.DataFrame) -> pd.DataFrame:
        """Its rows of its table."""
        return table[table["ball"].isin(cls.curves)] if cls.table == CURVES else table

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        """Why a trial cannot be measured so, a sentence without a full stop each; nothing where it can."""
        name, model = cls.Config.name, registry.get(registry.MODEL, trial.model.name)  # type: ignore[attr-defined]
        if cls.needs_derivatives and model.traits(trial.model).reads_ids:
            yield f"perturbation.{name} is set, but the model reads ids, which have no derivatives: leave it out"

    @classmethod
    def problems_without_steps(cls, asked: Any, module: str) -> Iterator[str]:
        """Why a user's module that does not go step by step cannot be measured so, as of ``problems``."""
        yield from ()

    @classmethod
    def in_short(cls, *, steps: bool, ids: bool) -> tuple[str, ...]:
        """Overrides that ask for it in a measurement of minutes, of a model of others; none: it is left out.

        Args:
            steps: the model goes step by step.
            ids: it reads ids.
        """
        return ()

    @classmethod
    @abstractmethod
    def cost(cls, asked: Any, effort: Effort) -> float:
        """Evaluations of a replica's loss on all of its data that the measure takes as long as, for the plan."""

    @abstractmethod
    def rows(self, model: Model, weights: Weights, row: int) -> Iterable[Mapping[str, Any]]:
        """The rows of the table, ``columns``, of one replica that did not diverge.

        Args:
            model: of the replica.
            weights: of the replica, stacked: ``[1, ...]``.
            row: of the replica in ``subject.pack``.
        """

    @classmethod
    def summary(cls, rows: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
        """Numbers of a whole trial for its summary, from the rows of its table, of which there are some."""
        return {}

    def extended(self, measured: Measured) -> Measured:
        """The measurements of the replicas, with this one."""
        from memsweep.stability.measure import with_table

        return with_table(measured, self.subject.pack, self.table, self.rows)


def _shares_table(measure: type[Measure], other: type[Measure]) -> bool:
    """Whether two measures that are not one class, imported twice, have one table."""
    return measure.table == other.table and measure.__qualname__ != other.__qualname__


class TrainingMeasure(Measure):
    """What is measured of replicas while they train, where a training asks for it.

    The fields of its Config stand in ``training``; they may say their ``problems_beside`` that section. Its numbers
    are part of the training, and are stored with it. Examples: ``memsweep.measures.sharpness`` measures at validations,
    ``memsweep.measures.alignment`` the gradients of steps.
    """

    when = DURING
    is_flat = True

    @classmethod
    @abstractmethod
    def observer(cls, asked: Any, ensemble: Ensemble, training: TrainingConfig) -> Observer | None:
        """What measures an ensemble, before its first step; None where this training has nothing to measure."""

    @classmethod
    @abstractmethod
    def gradients(cls, asked: Any, training: TrainingConfig) -> float:
        """As many gradients of a batch as it takes in the whole training, for the plan."""

    @classmethod
    def cost(cls, asked: Any, effort: Effort) -> float:
        return 0.0

    def rows(self, model: Model, weights: Weights, row: int) -> Iterable[Mapping[str, Any]]:
        """None after the training."""
        return ()


def with_optional(measured: Measured, subject: Subject) -> Measured:
    """The measurements of an ensemble's replicas, with all that their trials ask for, by name."""
    for asked in asked_of(subject.config.perturbation):
        measure: Measure = registry.get(registry.MEASURE, asked.name)(asked, subject)
        measured = measure.extended(measured)
    return measured
