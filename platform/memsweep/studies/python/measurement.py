"""The results of a measurement of one model in memory, for Python."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from memsweep.errors import counted
from memsweep.report.analysis.bounds import MARKED, found_share
from memsweep.report.naming.guesses import guessed_roles
from memsweep.report.naming.numbers import figure, percent
from memsweep.report.rows.verdicts import radius_lines
from memsweep.studies.python.own_outputs import NAME as OWN_OUTPUTS
from memsweep.studies.python.own_outputs import Sequences, sequences_in
from memsweep.studies.python.results import Results

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.report.analysis.contents import Contents
    from memsweep.studies.python.page import Page
    from memsweep.sweep.store.filesystem import Location

_MOST_OF_IT, _SEEN = 0.63, 0.01
"""Shares of the weight of a memory, and of its largest value, that say how far back it reaches."""


class Measurement(Results):
    """The numbers of one model in memory; made by ``memsweep.measure``. Its tables are those of ``Results``.

    Printed, it is the error and the radii: how far the weights of each ball may move before the error changes by each
    threshold, a share of the zero predictor's loss or of another reference. One model has no slope, so that nothing is
    called stable.
    """

    def __init__(self, location: Location, contents: Contents) -> None:
        models = [record["config"]["model"] for record in contents.study.records.values()]
        self._has_width = any(map(has_width, models))
        if not self._has_width:
            rows = ([replace(row, width=None) for row in part] for part in (contents.trained, contents.losses))
            contents = replace(contents, trained=next(rows), losses=next(rows))
        super().__init__(location, contents)

    def table(self, name: str) -> pd.DataFrame:
        """A table by its name; the width is missing where the module was built without one."""
        table = super().table(name)
        return table if self._has_width or "width" not in table else table.assign(width=np.nan)

    def _heading(self) -> str:
        return f"{self.name}, measured as it is"

    def _text(self) -> str:
        from memsweep.report.terminal import measured_text

        text = measured_text(self._tables())
        guesses = guessed_roles(self._contents.study.records.values())
        return "\n".join([*self._numbers(), *guesses, *(line.rstrip() for line in text.rstrip().splitlines())])

    def page(self) -> Page:
        """The page of the report, with the printed numbers of the model."""
        study = self._contents.study
        told = replace(study, description="\n".join([study.description, *self._numbers()]))
        return Results(self._location, replace(self._contents, study=told)).page()

    def guesses(self, identity: str) -> list[str]:
        """Sentences about the guessed roles of one combination of settings; none where all roles are known."""
        return guessed_roles([self._contents.study.records[identity]])

    def _numbers(self) -> list[str]:
        return [line for identity in self.replicas["identity"] for line in self._lines(identity)]

    def _lines(self, identity: str) -> Iterator[str]:
        """The numbers of one combination of settings."""
        varied = [name for name in self.trials.columns if "." in name and self.trials[name].nunique() > 1]
        row = self.trials.set_index("identity").loc[identity]
        yield from [", ".join(f"{name}={row[name]}" for name in varied)] if varied else []
        replica = self.replicas.query("identity == @identity").iloc[0]
        error, zero = float(replica["error"]), float(replica["zero_loss"])
        if (read := self._sequences(identity)) is not None:
            yield f"read: {counted(read.given, 'sequence')} of {read.kind}"
            of_all = f" of {read.given}" if read.tested < read.given else ""
            yield f"variance of its outputs over {read.tested}{of_all} sequences: {figure(zero)} (L₀)"
        else:
            yield f"error {figure(error)}: {percent(error / zero)} of the zero predictor's, {figure(zero)}"
        radii, curves = self.radii.query("identity == @identity"), self.curves.query("identity == @identity")
        yield from radius_lines(radii, curves)
        moved = self._config(identity)["perturbation"]
        if len(radii) and moved["method"] == "worst_case":
            effort = f"{counted(moved['starts'], 'random start')} and {counted(moved['ascent_steps'], 'step')}"
            check = _check(found_share(curves))
            yield f"radii are upper bounds, by the worst pushes that a search of {effort} found; {check}"
        yield from self._memory_lines(identity)

    def _memory_lines(self, identity: str) -> Iterator[str]:
        """How far back the last output reaches, where the memory over inputs was measured."""
        table = self.table("memory_over_inputs")
        own = table[table["identity"] == identity].sort_values("lag")
        weight = own["median"].to_numpy(float)
        if len(weight) and weight.sum() > 0:
            within = 1 + int((weight.cumsum() / weight.sum() >= _MOST_OF_IT).argmax())  # with the present step
            last = int(own["lag"].iloc[np.flatnonzero(weight >= _SEEN * weight.max())[-1]])
            farthest = "" if last < own["lag"].max() else ", the farthest looked at"
            read = self._sequences(identity)
            asked = self._config(identity)["perturbation"]["memory_over_inputs"]["sequences"]
            yield (
                f"memory of the last output, the median of {min(asked, read.tested) if read else asked} sequences: "
                f"{percent(_MOST_OF_IT)} of its weight within {within} of {len(weight)} steps; at {percent(_SEEN)} of "
                f"its largest or more up to {last} steps back{farthest}"
            )

    def _sequences(self, identity: str) -> Sequences | None:
        """The sequences that were given to the model; None: its task draws as many as are asked for."""
        task = self._config(identity)["task"]
        return sequences_in(task["file"]) if task["name"] == OWN_OUTPUTS else None

    def _config(self, identity: str) -> Mapping[str, Any]:
        return self._contents.study.records[identity]["config"]


def _check(share: float) -> str:
    """The sentence of a stronger search about the usual one, which found at least this share of the change."""
    if math.isnan(share):
        return "no stronger one checked it"
    smaller = ", so that the true radii are smaller" if share < MARKED else ""
    return f"it found at least {math.floor(1000 * share + 1e-6) / 10:g} % of what a stronger one did{smaller}"


def has_width(model: Mapping[str, Any]) -> bool:
    """Whether a model is built with its width. Of a module that takes none the section holds the default.

    Args:
        model: the section of a canonical config.
    """
    return model.get("width_argument", "width") is not None or bool(model["wrap"])
