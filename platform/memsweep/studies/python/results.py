"""The results of a study for Python: tables as DataFrames, figures, weights, verdicts by other criteria."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.errors import ConfigError, MemsweepError, did_you_mean, one_of
from memsweep.extras import need
from memsweep.report.analysis.contents import Contents, analyse
from memsweep.report.formats import PAPER, width_of
from memsweep.report.headline.answer import answer_of
from memsweep.report.naming.numbers import is_number
from memsweep.report.read.study import typed, with_settings
from memsweep.report.read.weights import ReplicaWeights, weights
from memsweep.report.rows.report import Tables, tables_of
from memsweep.report.rows.verdicts import radii_table
from memsweep.stability.verdict.judgement import Criteria
from memsweep.studies.python.page import Page
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.tables import (
    CURVES,
    HISTORY,
    MEMORY,
    METRICS,
    REPLICAS,
    of_measures,
)
from memsweep.trust.gate import Trust

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn

    from memsweep.report.figures.panels import Picture

_WRITTEN = ("verdicts", "slopes", "losses")
_MEASURED = (CURVES, HISTORY, REPLICAS, METRICS, MEMORY)
_WIDTH = 110  # letters of a printed line


class Results:
    """A study's stored results; made by ``memsweep.sweep`` and ``memsweep.results``.

    It holds the trials of the study's current plan that had a result when it was made, and no others. Each table is a
    new DataFrame. Tables with a row per trial, seed, radius or step have a column ``identity`` (of the trial) and one
    for every field that varies in the study, by its dotted path: ``model.width``, ``training.learning_rate``, a field
    of a task of your own. A field that a trial lacks is missing in its row. Losses and errors are in the unit of the
    task's loss; one that diverged is infinite.

    Printed, and in a notebook, it is the verdicts as ``memsweep report`` shows them.
    """

    def __init__(self, location: Location, contents: Contents) -> None:
        self._location, self._contents = location, contents

    @property
    def contents(self) -> Contents:
        """Everything that the report is made from."""
        return self._contents

    @property
    def name(self) -> str:
        """Of the study."""
        return self._contents.study.name

    @property
    def location(self) -> str:
        """The folder of the results: an absolute path, or ``s3://bucket/...``."""
        return self._location.uri

    @property
    def answers(self) -> tuple[str, ...]:
        """The headline of the report, then what else the study answers: plain sentences."""
        return answer_of(self._contents).sentences

    @property
    def verdicts(self) -> pd.DataFrame:
        """A row per condition and ball, as in ``verdicts.csv``.

        The fields that tell conditions apart; ``verdict`` (stable, unstable, inconclusive); the deciding slopes of log
        radius in log horizon and log width with the ends of their 95 % intervals (``slope_horizon_low``, ...); the
        ``threshold`` at which they were read, as a share of the zero predictor's loss; ``reasons`` in words.
        """
        return self.table("verdicts")

    @property
    def slopes(self) -> pd.DataFrame:
        """A row per condition, ball and threshold, as in ``slopes.csv``: all slopes, and evidence that decides none."""
        return self.table("slopes")

    @property
    def losses(self) -> pd.DataFrame:
        """A row per condition and size without a verdict, as in ``losses.csv``: medians over seeds, and their range."""
        return self.table("losses")

    @property
    def radii(self) -> pd.DataFrame:
        """A row per trial, seed, ball and threshold, as in ``radii.csv``: how far the weights may move.

        ``radius`` lies between ``radius_low`` and ``radius_high``, and is a distance in the norm of
        ``perturbation.norm``; ``censored`` where the threshold is reached at no radius that was tried. ``reading`` is
        what reaches it (drift, excess, error, metric or self), and ``how`` says whether it was found or interpolated.
        """
        return self.table("radii")

    @property
    def curves(self) -> pd.DataFrame:
        """A row per trial, seed, ball and radius, as in ``curves.parquet``: the perturbation ``error`` there, and
        the ``change`` that radii are read from."""
        return self.table(CURVES)

    @property
    def history(self) -> pd.DataFrame:
        """A row per trial, seed and validated training step: ``train_loss`` and ``validation_loss``."""
        return self.table(HISTORY)

    @property
    def replicas(self) -> pd.DataFrame:
        """A row per trial and seed: outcome, final losses, the task's metric, norms."""
        return self.table(REPLICAS)

    @property
    def metrics(self) -> pd.DataFrame:
        """A row per trial, seed and metric that the task reports beside its first, as accuracies at 2T and 4T."""
        return self.table(METRICS)

    @property
    def memory(self) -> pd.DataFrame:
        """A row per trial, seed and lag: the memory function that was ``learned``, the ``target``, the ``gradient``."""
        return self.table(MEMORY)

    def __getattr__(self, name: str) -> pd.DataFrame:
        """The table of a measure, by its name: a row per trial, seed, and what the measure's columns say."""
        if name.startswith("_") or name not in of_measures():
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return self.table(name)

    @property
    def trials(self) -> pd.DataFrame:
        """A row per trial, as in ``trials.csv``: all that varies, width, horizon, first seed and number of seeds."""
        return self.table("trials")

    @property
    def missing(self) -> pd.DataFrame:
        """A row per trial of the plan without a result: ``identity``, ``outcome``, ``reason`` and ``traceback``."""
        import pandas as pd

        names = ("identity", "outcome", "reason", "traceback")
        rows = [[getattr(row, name) for name in names] for row in self._contents.study.missing]
        return pd.DataFrame(rows, columns=list(names))

    @property
    def names(self) -> list[str]:
        """Of all tables: those that are properties, and those of what the study has besides (winners, claims, ...)."""
        return list(dict.fromkeys([*_WRITTEN, "radii", "trials", *_MEASURED, *of_measures(), *self._tables().named]))

    def table(self, name: str) -> pd.DataFrame:
        """A table by its name.

        Besides the properties: ``winners`` and ``search`` (of a search, the winners and all suggestions), ``ceilings``
        (learning rates that train, by seed), ``alignment`` (gradients of learning rules beside the true ones),
        ``published`` and ``compared`` (claims).

        Raises:
            MemsweepError: the study has no such table; the message names those that it has.
        """
        contents = self._contents
        trials = contents.trials
        if name == "trials":
            return typed(trials)
        if name == "radii":
            return with_settings(radii_table(contents.findings), trials)
        if name == CURVES:  # of a search, its winners alone are measured for the verdict
            return with_settings(contents.measured.tables[name], trials)
        if name in (*_MEASURED, *of_measures()):
            return with_settings(contents.study.tables[name], trials)
        found = self._exported()
        if name not in found:
            if any(name in record["files"] for record in contents.study.records.values()):
                raise MemsweepError(
                    f"the table {name!r} of {self.name} is stored, and the measure that made it is not loaded: import "
                    "the module that registers it, and read the results again."
                )
            raise MemsweepError(
                f"{self.name} has no table {name!r}.{did_you_mean(name, self.names)} It has: {one_of(self.names)}."
            )
        return found[name].frame().copy()

    @property
    def figures(self) -> list[str]:
        """The names of the report's figures, as of its files in ``figures/``; those of single trials are not listed."""
        return list(self._figures())

    def figure(self, name: str, paper: str = "") -> Picture:
        """One of the report's figures, drawn anew.

        Args:
            name: one of ``figures``, such as ``radius-recurrent``; or ``trial-`` and the beginning of an identity.
            paper: ``single`` or ``double``: as wide as one or both columns of a paper; empty: as in the report.

        Returns:
            A matplotlib ``Figure``, to be changed or saved as any: ``results.figure("memory").savefig("memory.pdf")``.

        Raises:
            MemsweepError: the report has no such figure; the message names those that it has.
        """
        need("matplotlib", "a figure")
        from memsweep.report.figures.panels import figure_of

        known = self._of_trial(str(name)) or self._figures()
        if name not in known:
            raise MemsweepError(
                f"the report of {self.name} has no figure {name!r}.{did_you_mean(name, known)} It has: {one_of(known)}."
            )
        if paper and paper not in PAPER:
            raise MemsweepError(f"paper is {paper!r}; allowed: {one_of(PAPER)}.")
        gallery, panels = known[name]
        return figure_of(gallery, panels, width_of([paper]))

    def weights(self, trial: str | Mapping[str, Any] = "", seed: int | None = None) -> dict[str, Tensor]:
        """The trained weights of one model, as ``load_state_dict`` of its module takes them.

        Args:
            trial: the beginning of its identity, or the values of fields that single it out: ``{"model.width": 8}``.
                Not needed where the study has one trial.
            seed: of the model; not needed where the trial has one.

        Returns:
            Name -> tensor, in the precision of training: those of the best validation, before a parameterization acts.

        Raises:
            MemsweepError: no trial or several are meant, or the trial has no such seed; the message lists them.
            StoreError: the weights were not kept, were deleted, or are damaged.
        """
        return dict(self._weights(trial, seed).tensors)

    def model(
        self,
        trial: str | Mapping[str, Any] = "",
        seed: int | None = None,
        *,
        workspace: str | Path = ".",
        trust: bool = False,
    ) -> nn.Module:
        """One trained model: a module with its trained weights, in eval mode and in the precision of training.

        Args:
            trial, seed: as of ``weights``.
            workspace: folder that holds tasks/ and the files of modules.
            trust: the module that the trial names may be called, though another user planned it.

        Returns:
            A registered model, ``[batch, time, inputs] -> [batch, time, outputs]``; or the user's own module.

        Raises:
            MemsweepError, StoreError: as of ``weights``.
            TrustError: the trial names code that this user has neither planned nor trusted.
            ModuleError: the user's module cannot be made.
        """
        from memsweep.studies.python.in_memory import trained_module

        found = self._weights(trial, seed)
        return trained_module(found, self.name, self.location, Path(workspace), Trust(trust))

    def page(self) -> Page:
        """The page of the report: a notebook shows it inline, ``page().save(path)`` writes it into a file."""
        from memsweep.report.publish import page_text

        return Page(page_text(self._contents, self._tables()))

    def judge(self, *, thresholds: Sequence[float] | float | None = None, slope_limit: float | None = None) -> Results:
        """Judge the stored results by other criteria; nothing is trained or written.

        Args:
            thresholds: drifts at which radii are read, as shares of the zero predictor's loss (None: as here).
            slope_limit: a radius is unstable if its slope is below this with confidence; below 0 (None: as here). The
                limit of the growth follows from it.

        Returns:
            The same results with verdicts, slopes and radii by these criteria. The error rates in docs/verdict.md are
            those of the rule's own criteria.

        Raises:
            ConfigError: a value is not allowed.
        """
        own = self._contents.criteria
        asked: Any = thresholds
        given = (asked,) if is_number(asked) or isinstance(asked, str) else None if asked is None else tuple(asked)
        for each in (*(given or ()), *(() if slope_limit is None else (slope_limit,))):
            if not is_number(each):
                text = f"thresholds and slope_limit are numbers, got {each!r}: thresholds=[0.01, 0.1]"
                raise ConfigError([text], "judge")
        criteria = Criteria(
            own.thresholds if given is None else tuple(map(float, given)),
            own.slope_limit if slope_limit is None else float(slope_limit),
        )
        return Results(self._location, analyse(self._contents.study, criteria))

    def _weights(self, trial: str | Mapping[str, Any], seed: int | None) -> ReplicaWeights:
        asked: Any = trial
        if not isinstance(asked, str | Mapping):
            form = "the beginning of its identity, or values of its fields ({'model.width': 8})"
            raise MemsweepError(f"a trial is named by {form}, got {asked!r}.")
        words = [trial] if isinstance(trial, str) else [f"{path}={value}" for path, value in trial.items()]
        return weights(self._location, [word for word in words if word], seed, self._contents.study.records.keys())

    def _exported(self) -> dict[str, Any]:
        tables = self._tables()
        return {name: getattr(tables, name) for name in _WRITTEN} | tables.named

    def _tables(self) -> Tables:
        return tables_of(self._contents)

    def _figures(self) -> dict[str, Any]:
        """Name -> gallery and its panels."""
        need("matplotlib", "a figure")
        from memsweep.report.figures.charts import galleries_of
        from memsweep.report.figures.panels import parts_of

        return {
            name: (gallery, panels)
            for gallery in galleries_of(self._contents, self._tables().sections)
            for name, panels in parts_of(gallery).items()
        }

    def _of_trial(self, name: str) -> dict[str, Any]:
        """The figure of the one trial that the name means, if it means one."""
        from memsweep.report.figures.charts import trial_gallery

        start, study = name.removeprefix("trial-"), self._contents.study
        found = (
            [identity for identity in study.records if identity.startswith(start)] if start not in ("", name) else []
        )
        gallery = trial_gallery(study, found[0]) if len(found) == 1 else None
        return {name: (gallery, gallery.panels)} if gallery is not None and gallery.panels else {}

    def _heading(self) -> str:
        study = self._contents.study
        return f"{study.name}: {study.finished} of {study.planned} trials have a result ({self._location.uri})"

    def _text(self) -> str:
        from memsweep.report.terminal import report_text

        text = report_text(self._contents, self._tables(), width=_WIDTH, colour=False)
        return "\n".join(line.rstrip() for line in text.splitlines())

    def __repr__(self) -> str:
        return f"{self._heading()}\n\n{self._text()}"

    def _repr_html_(self) -> str:
        return (
            f'<div>{html.escape(self._heading())}</div><pre style="line-height: 1.2">{html.escape(self._text())}</pre>'
        )
