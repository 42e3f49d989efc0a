"""Writes runs with MLflow's client: one experiment per study, one parent run per sweep, one child run per trial.

Every method may be called again after an error and ends in the same runs. A run that a failed call created all the
same, or that was created twice, is found by its tags; all but one are deleted.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Experiment, Metric, Param, Run, RunTag, ViewType

from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.tracking.retries import Calls
from memsweep.sweep.tracking.run_content import IDENTITY, NOTE, OUTCOME, ChildRun, Stamp, sweep_key
from memsweep.sweep.tracking.uri import SERVERS, artifact_location, home

PARENT, SWEEP = "mlflow.parentRunId", "memsweep.sweep"

_LOCK_SECONDS = 120.0
_PAGE = 500  # runs a search asks for at once


@dataclass(frozen=True)
class _Known:
    """A child run as MLflow holds it."""

    run_id: str
    stamp: Stamp

    @classmethod
    def of(cls, run: Run) -> _Known:
        info, outcome = run.info, run.data.tags.get(OUTCOME, "")
        return cls(info.run_id, Stamp(outcome, info.status, info.start_time or 0, info.end_time or 0))

    def can_become(self, stamp: Stamp) -> bool:
        """Whether this run can get the content of a new one; its start and artifacts cannot be changed."""
        begun = (self.stamp.outcome, self.stamp.started) == (stamp.outcome, stamp.started)
        return begun and (self.stamp.status == "RUNNING" or self.stamp == stamp)


class Writer:
    """The runs of one sweep. Every method may raise MLflow's errors.

    Used by one thread; only ``holds``, ``has`` and ``write`` may run in several at once, each for another trial, after
    ``open``.

    Args:
        uri: tracking URI of a server or a database.
        results: results folder: the home of the artifacts when ``uri`` is a database.
        study: name of the experiment.
        description: shown on the experiment and on the parent run.
        params: flat settings of the sweep, for the parent run.
        tags: of the parent run; a sweep with the same params and tags continues its parent run.
    """

    def __init__(
        self,
        uri: str,
        results: Location | Path,
        study: str,
        description: str,
        params: Mapping[str, Any],
        tags: Mapping[str, Any],
    ) -> None:
        self._uri, self._results, self._study, self._description = uri, results, study, description
        self._params = {name: str(value) for name, value in params.items()}
        self._tags = {name: str(value) for name, value in tags.items()}
        self._key = sweep_key(study, self._params, self._tags)
        self._children: dict[str, _Known] = {}
        self._unsure: set[str] = set()  # identities whose run may exist although the call failed
        self._client: MlflowClient | None = None
        self.calls = Calls()
        self.experiment_id: str | None = None
        self.parent_id: str | None = None

    def open(self) -> None:
        """Create (or find) database, experiment and parent run, and find the children that exist."""
        if self.parent_id is not None:
            return
        with self._alone():
            self._client = client = self._client or MlflowClient(tracking_uri=self._uri)
            self.experiment_id = self._experiment(client)
            self.parent_id = self._parent(client, self.experiment_id)

    def has(self, identity: str) -> bool:
        """Whether MLflow has a result of this trial."""
        self.open()
        return identity in self._children and self._children[identity].stamp.status == "FINISHED"

    def holds(self, identity: str, stamp: Stamp) -> bool:
        """Whether MLflow has exactly this result, or this failure, of the trial."""
        self.open()
        return identity in self._children and self._children[identity].stamp == stamp

    def write(self, child: ChildRun) -> None:
        """Write the run of a trial, in place of one that shows another result; does nothing if it exists."""
        if self.holds(child.identity, child.stamp):
            return
        client, _ = self._opened()
        run_id = self._run_of(child)
        self.calls.repeatable(
            lambda: client.log_batch(
                run_id,
                metrics=[Metric(point.key, point.value, child.stamp.ended, point.step) for point in child.metrics],
                params=[Param(key, value) for key, value in child.params.items()],
                tags=[RunTag(key, value) for key, value in child.tags.items()],
            )
        )
        with tempfile.TemporaryDirectory(prefix="memsweep-") as folder:
            for name, data in child.artifacts.items():
                (Path(folder) / name).write_bytes(data)
            self._upload(run_id, Path(folder))
        self._end(client, run_id, child.stamp.status, child.stamp.ended)
        self._children[child.identity] = _Known(run_id, child.stamp)

    def write_report(self, folder: Path) -> None:
        """Copy a folder to the artifacts of the parent run, as ``report/``.

        Raises:
            FileNotFoundError: there is no such folder (MLflow itself would say nothing).
        """
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no report in {folder}")
        _, parent = self._opened()
        self._upload(parent, folder, "report")

    def close(self, status: str) -> None:
        """End the parent run (FINISHED, FAILED or KILLED), after the duplicates are deleted."""
        client, parent = self._opened()
        self._delete_duplicates(client, parent)
        self._end(client, parent, status, None)

    def keep_only(self, identities: Collection[str]) -> int:
        """Delete the children of all other trials; returns how many."""
        client, _ = self._opened()
        others = sorted(self._children.keys() - set(identities))
        for identity in others:
            self._delete(client, self._children[identity].run_id)
            del self._children[identity]
        return len(others)

    def _run_of(self, child: ChildRun) -> str:
        """The run of a trial to write to; a new one if there is none that can be completed."""
        client, parent = self._opened()
        if child.identity in self._unsure:
            self._look_for(child.identity)
        known = self._children.get(child.identity)
        if known is not None and known.can_become(child.stamp):
            return known.run_id
        if known is not None:
            self._delete(client, known.run_id)
            del self._children[child.identity]

        def make() -> _Known:
            tags = child.tags | {PARENT: parent}
            return _Known.of(client.create_run(self.experiment_id, child.stamp.started, tags, run_name=child.name))

        self._unsure.add(child.identity)
        made = self.calls.creation(make, partial(self._look_for, child.identity))
        self._unsure.discard(child.identity)
        self._children[child.identity] = made
        return made.run_id

    def _look_for(self, identity: str) -> _Known | None:
        """The run that a call created although it seemed to fail."""
        runs = self._search(f"tags.`{PARENT}` = '{self.parent_id}' and tags.`{IDENTITY}` = '{identity}'")
        if not runs:
            return None
        self._children[identity] = _Known.of(min(runs, key=_rank))
        return self._children[identity]

    def _experiment(self, client: MlflowClient) -> str:
        def look() -> Experiment | None:
            return client.get_experiment_by_name(self._study)

        def look_for_id() -> str | None:
            found = look()
            return str(found.experiment_id) if found is not None else None

        def make() -> str:
            # Without the kind MLflow's page guesses one, and opens on traces of language models.
            tags = {"mlflow.experimentKind": "custom_model_development"}
            tags |= {NOTE: self._description} if self._description else {}
            return str(client.create_experiment(self._study, artifact_location(self._uri, self._results), tags))

        found = self.calls.repeatable(look)
        if found is None:
            return self.calls.creation(make, look_for_id)
        if found.lifecycle_stage == "deleted":
            self.calls.repeatable(lambda: client.restore_experiment(found.experiment_id))
        return str(found.experiment_id)

    def _parent(self, client: MlflowClient, experiment_id: str) -> str:
        def look() -> Run | None:
            return min(self._search(self._own()), key=_rank, default=None)

        def make() -> Run:
            tags = {**self._tags, SWEEP: self._key, "mlflow.source.name": f"memsweep sweep {self._study}"}
            if self._description:
                tags[NOTE] = self._description
            return client.create_run(experiment_id, tags=tags, run_name=self._study)

        known = self.calls.repeatable(look)
        run = known or self.calls.creation(make, look)
        run_id = str(run.info.run_id)
        if run.info.status != "RUNNING":
            # Not update_run, whose two requests a server that fails at every second one would never complete.
            self._end(client, run_id, "RUNNING", run.info.end_time)
        params = [Param(name, value) for name, value in self._params.items() if name not in run.data.params]
        if params:
            self.calls.repeatable(lambda: client.log_batch(run_id, params=params))
        if known is not None:  # a new one has no children
            self._delete_duplicates(client, run_id)
        return run_id

    def _own(self) -> str:
        """The condition of the sweep's own run: the children do not have this tag."""
        return f"tags.`{SWEEP}` = '{self._key}'"

    def _delete_duplicates(self, client: MlflowClient, parent: str) -> None:
        """Keep one parent run, and one child run per trial; note the children that remain."""
        for run in self.calls.repeatable(lambda: self._search(self._own())):
            if run.info.run_id != parent:
                self._move_children(client, run.info.run_id, parent)
        children: dict[str, list[Run]] = {}
        for run in self.calls.repeatable(lambda: self._search(f"tags.`{PARENT}` = '{parent}'")):
            if IDENTITY in run.data.tags:
                children.setdefault(run.data.tags[IDENTITY], []).append(run)
        for runs in children.values():
            runs.sort(key=_rank)
            for run in runs[1:]:
                self._delete(client, run.info.run_id)
        self._children = {identity: _Known.of(runs[0]) for identity, runs in children.items()}

    def _move_children(self, client: MlflowClient, other: str, parent: str) -> None:
        """Move the children of another parent of the same sweep to this one and delete it."""
        for run in self.calls.repeatable(lambda: self._search(f"tags.`{PARENT}` = '{other}'")):
            self.calls.repeatable(partial(client.set_tag, run.info.run_id, PARENT, parent))
        self._delete(client, other)

    def _delete(self, client: MlflowClient, run_id: str) -> None:
        self.calls.deletion(lambda: client.delete_run(run_id))

    def _upload(self, run_id: str, folder: Path, below: str | None = None) -> None:
        """File by file, so that each may be repeated alone; the number of requests is the same."""
        client, _ = self._opened()
        for path in sorted(file for file in folder.rglob("*") if file.is_file()):
            parts = [*([below] if below else []), *path.relative_to(folder).parts[:-1]]
            self.calls.repeatable(partial(client.log_artifact, run_id, str(path), "/".join(parts) or None))

    def _end(self, client: MlflowClient, run_id: str, status: str, ended: int | None) -> None:
        self.calls.repeatable(lambda: client.set_terminated(run_id, status, ended))

    def _search(self, condition: str) -> list[Run]:
        client = self._client
        assert client is not None
        runs: list[Run] = []
        token: str | None = None
        while token is None or token:
            page = client.search_runs([self.experiment_id], condition, ViewType.ACTIVE_ONLY, _PAGE, page_token=token)
            runs += page
            token = page.token or ""
        return runs

    def _opened(self) -> tuple[MlflowClient, str]:
        self.open()
        assert self._client is not None
        assert self.parent_id is not None
        return self._client, self.parent_id

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Two processes that create one SQLite file at the same time would leave it unusable."""
        if self._uri.partition(":")[0] in SERVERS:
            yield
            return
        folder = home(self._results)
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".mlflow.lock", timeout=_LOCK_SECONDS):
            yield


def _rank(run: Run) -> tuple[bool, bool, int, str]:
    """Order in which several runs of the same trial are kept: with a result, then ended, then the oldest."""
    status = run.info.status
    return status != "FINISHED", status == "RUNNING", run.info.start_time or 0, str(run.info.run_id)
