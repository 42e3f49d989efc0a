"""What the writer asks of MLflow, and what MLflow answers: values of our own, so that nothing here imports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol


class Value(NamedTuple):
    """One value of a metric, with its Unix time in milliseconds."""

    key: str
    value: float
    time: int
    step: int


@dataclass(frozen=True)
class Held:
    """A run as MLflow holds it; times are Unix times in milliseconds."""

    run_id: str
    status: str
    started: int
    ended: int | None
    artifacts: str
    metrics: Mapping[str, float]
    params: Mapping[str, str]
    tags: Mapping[str, str]


class Client(Protocol):
    """What MLflow is asked for. Every call may raise the errors of ``faults``."""

    def experiment(self, name: str) -> str | None:
        """The id of the experiment of this name, taken out of the trash if it is there; None without one."""

    def create_experiment(self, name: str, artifacts: str | None, tags: Mapping[str, str]) -> str | None:
        """Makes an experiment and gives its id; None where it exists."""

    def create_run(self, experiment: str, started: int | None, tags: Mapping[str, str], name: str) -> Held:
        """Begins a run: now, if no time is given."""

    def log(
        self, run: str, metrics: Sequence[Value] = (), params: Mapping[str, str] = {}, tags: Mapping[str, str] = {}
    ) -> None:
        """Adds metrics, parameters and tags to a run. A parameter that exists must have the same value."""

    def delete_tag(self, run: str, key: str) -> None:
        """Takes a tag away."""

    def save(self, held: Held, folder: Path, below: str = "") -> None:
        """Copies what is in a folder to the artifacts of a run, below a path."""

    def end(self, run: str, status: str, ended: int | None = None) -> None:
        """Gives a run its status and its end: now, if no time is given."""

    def delete_run(self, run: str) -> None:
        """Puts a run in the trash, where it may be already."""

    def tagged(self, experiment: str, key: str, value: str) -> list[Held]:
        """The runs of an experiment whose tag has this value, without those in the trash."""

    def run(self, run: str) -> Held:
        """One run."""
