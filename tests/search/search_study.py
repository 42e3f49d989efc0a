"""A study with a search whose rows cost nothing: their results are a function of their settings, written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from memsweep.config.load.study import load_study
from memsweep.config.schema.study import SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.search.study_search import StudySearch
from memsweep.sweep.store.results import Store
from paths import ROOT

STUDY = """
task: {name: linear_functional, horizon: 20}
model: {name: diagonal_rnn, width: 4}
training: {seeds: 2, steps: 900, validate_every: 50}
grid:
  model.width: [2, 4]
search:
  training.learning_rate: {log_uniform: [1e-4, 1]}
  trials: 6
  batch: 2
  startup: 3
  algorithm: random
confirm: {seeds: 4, top: 1}
"""

Loss = Callable[[TrialConfig], float]


def study(folder: Path, *overrides: str, text: str = STUDY) -> SweepConfig:
    """The study under overrides."""
    path = folder / "found.yaml"
    path.write_text(text)
    return load_study(str(path), list(overrides), ROOT)


def loss(config: TrialConfig) -> float:
    """Least at a learning rate of 0.01 x width / 4; falls with the steps."""
    best = 0.01 * config.model.width / 4
    steps = config.training.until or config.training.steps
    return 1.0 / steps + 0.01 * math.log10(config.training.learning_rate / best) ** 2


class Remembered(Store):
    """A study's folder whose results are kept in memory; what a search writes down is in the folder."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.losses: dict[str, float] = {}

    def has(self, identity: str) -> bool:
        return identity in self.losses

    def record(self, identity: str) -> dict[str, Any]:
        return {"summary": {"validation_loss": self.losses[identity]}}


def finish(
    sweep: SweepConfig,
    store: Remembered,
    *,
    loss: Loss = loss,
    failing: Collection[int] = (),
    rounds: int = 1000,
) -> StudySearch:
    """Go on with a search until it ends, or for some rounds; what is stored already is not computed again.

    Args:
        failing: numbers of suggestions that fail.
    """
    study_search = StudySearch(sweep, store)
    failed: set[str] = set()
    for _ in range(rounds):
        while study_search.advance(failed):
            pass
        todo = [row for row in study_search.searched if not store.has(row.identity) and row.identity not in failed]
        if not todo:
            break
        for row in todo:
            if row.number in failing and not row.rank:
                failed.add(row.identity)
            else:
                store.losses[row.identity] = loss(study_search.trials[row.identity].config)
    return study_search


def table(study_search: StudySearch) -> list[tuple[Any, ...]]:
    """Everything that a search did, row by row."""
    return [(row, study_search.trials[row.identity].config) for row in study_search.searched]
