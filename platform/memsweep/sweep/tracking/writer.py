"""Writes runs to MLflow: one experiment per study, one parent run per sweep, one child run per trial.

Every call may be made again after an error and ends in the same runs. Where a creation was repeated, by MLflow's client
or by us, two runs may exist: ``close`` deletes all but one.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from memsweep import registry
from memsweep.extras import is_there
from memsweep.gate import gated
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.tracking.held import Client, Held, Value
from memsweep.sweep.tracking.run_content import HEADLINE, IDENTITY, NOTE, OUTCOME, ChildRun, Stamp, Verdicts, sweep_key
from memsweep.sweep.tracking.tables import Tables, knows
from memsweep.sweep.tracking.uri import SERVERS, artifact_location, home, make_whole, mend, own_database, run_page

PARENT, SWEEP = "mlflow.parentRunId", "memsweep.sweep"

_LOCK_SECONDS = 120.0
_BATCH = 100


def _outdated(names: Iterable[str], verdicts: Verdicts) -> list[str]:
    """The tags that an earlier verdict left: a study that was extended has other conditions, or other verdicts."""
    kinds = "|".join(map(re.escape, ("ball", *registry.names(registry.MEASURE))))
    of_verdict = re.compile(rf"(^|/)({kinds})_[^/]+/[^/]+$")
    return [name for name in names if of_verdict.search(name) and name not in verdicts.tags]


@dataclass(frozen=True)
class _Known:
    """A child run as MLflow holds it."""

    run: Held
    stamp: Stamp
    values: dict[str, float | str] = field(default_factory=dict)  # metrics and tags

    @classmethod
    def of(cls, run: Held) -> _Known:
        stamp = Stamp(run.tags.get(OUTCOME, ""), run.status, run.started, run.ended or 0)
        return cls(run, stamp, {**run.metrics, **run.tags})


class Writer:
    """The runs of one sweep. Every method may raise MLflow's errors.

    Used by one thread; only ``holds`` and ``write`` may run in several at once, each for another trial.

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
        study = gated(study)
        own_params = {name: str(value) for name, value in params.items()}
        own_tags = {name: str(value) for name, value in tags.items()}
        key = sweep_key(study, own_params, own_tags)
        own_tags |= {SWEEP: key, "mlflow.source.name": f"memsweep sweep {study}"}
        note = {NOTE: description} if description else {}
        self._description = description
        self._key = key
        self._children: dict[str, _Known] = {}
        with _alone(uri, results):
            make_whole(uri, results)
            self._client = _client(uri, results)
            self.experiment_id = self._experiment(study, note, artifact_location(uri, results))
            mend(uri, results)
            self.parent_id = self._parent(study, own_tags | note, own_params)

    def holds(self, identity: str, stamp: Stamp) -> bool:
        """Whether MLflow has exactly this result, or this failure, of the trial."""
        return identity in self._children and self._children[identity].stamp == stamp

    def write(self, child: ChildRun) -> None:
        """Write the run of a trial, in place of one that shows another result; does nothing if it exists."""
        if self.holds(child.identity, child.stamp):
            return
        begun = self._run_of(child)
        self._client.log(
            begun.run.run_id,
            [Value(point.key, point.value, child.stamp.ended, point.step) for point in child.metrics],
            child.params,
            {key: value for key, value in child.tags.items() if begun.values.get(key) != value},
        )
        with tempfile.TemporaryDirectory(prefix="memsweep-") as folder:
            for name, data in child.artifacts.items():
                (Path(folder) / name).write_bytes(data)
            self._client.save(begun.run, Path(folder))
        self._client.end(begun.run.run_id, child.stamp.status, child.stamp.ended)
        self._children[child.identity] = replace(begun, stamp=child.stamp)

    def write_verdicts(self, identity: str, verdicts: Verdicts) -> None:
        """Add to the run of a trial what its finished study says about it; does nothing if that is there."""
        known = self._children[identity]
        values: dict[str, float | str] = {**verdicts.metrics, **verdicts.tags}
        outdated = _outdated([name for name, value in known.values.items() if isinstance(value, str)], verdicts)
        if values.items() <= known.values.items() and not outdated:
            return
        metrics = [Value(key, value, verdicts.time, 0) for key, value in verdicts.metrics.items()]
        self._client.log(known.run.run_id, metrics, tags=verdicts.tags)
        known.values.update(values)
        for name in outdated:
            self._client.delete_tag(known.run.run_id, name)
            if name not in verdicts.metrics:
                del known.values[name]

    def write_report(self, folder: Path, about: Verdicts | None = None) -> None:
        """Copy a folder to the artifacts of the parent run, as ``report/``, and add what the study says to that run.

        Raises:
            FileNotFoundError: there is no such folder (MLflow itself would say nothing).
        """
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no report in {folder}")
        self._client.save(self._client.run(self.parent_id), folder, "report")
        page = run_page(self.experiment_id, self.parent_id, "report/index.html")
        said = about.tags.get(HEADLINE, "") if about is not None else ""
        texts = [self._description, said, f"[The report with its verdicts]({page[1:]})"]
        self._client.log(self.parent_id, tags={NOTE: "\n\n".join(filter(None, texts))})
        if about is not None:
            self._write_study(about)

    def _write_study(self, about: Verdicts) -> None:
        """Metrics and tags of the parent run, in the largest batches that MLflow takes."""
        tags = [*about.tags.items()]
        metrics = [Value(name, value, about.time, 0) for name, value in about.metrics.items()]
        for start in range(0, max(len(tags), len(metrics)), _BATCH):
            part = slice(start, start + _BATCH)
            self._client.log(self.parent_id, metrics[part], tags=dict(tags[part]))
        for name in _outdated(self._client.run(self.parent_id).tags, about):
            self._client.delete_tag(self.parent_id, name)

    def close(self, status: str, keep: Collection[str] | None) -> None:
        """End the parent run (FINISHED, FAILED or KILLED), after the duplicates are deleted.

        Args:
            status: its end.
            keep: the trials whose runs stay; None for all.
        """
        self._delete_duplicates(self.parent_id)
        for identity in sorted(self._children.keys() - (self._children.keys() if keep is None else set(keep))):
            self._client.delete_run(self._children.pop(identity).run.run_id)
        self._client.end(self.parent_id, status)

    def _run_of(self, child: ChildRun) -> _Known:
        """The run of a trial to write to; a new one if there is none that was begun for this result."""
        known = self._children.get(child.identity)
        begun = replace(child.stamp, status="RUNNING", ended=0)
        if known is not None and known.stamp == begun:
            return known
        if known is not None:  # its start and its artifacts cannot be changed
            self._client.delete_run(known.run.run_id)
            del self._children[child.identity]
        tags = child.tags | {PARENT: self.parent_id}
        run = self._client.create_run(self.experiment_id, child.stamp.started, tags, child.name)
        self._children[child.identity] = known = _Known.of(run)
        return known

    def _experiment(self, study: str, note: Mapping[str, str], artifacts: str | None) -> str:
        if (found := self._client.experiment(study)) is not None:
            return found
        # Without the kind MLflow's page guesses one, and opens on traces of language models.
        tags = {"mlflow.experimentKind": "custom_model_development", **note}
        made = self._client.create_experiment(study, artifacts, tags) or self._client.experiment(study)
        if made is None:
            raise ConnectionError(f"MLflow did not create the experiment {study!r}")
        return made

    def _parent(self, study: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        run = min(self._of_this_sweep(), key=_rank, default=None)
        if run is None:
            run = self._client.create_run(self.experiment_id, None, tags, study)
        else:
            self._delete_duplicates(run.run_id)
        if run.status != "RUNNING":
            self._client.end(run.run_id, "RUNNING", run.ended)
        if missing := {name: value for name, value in params.items() if name not in run.params}:
            self._client.log(run.run_id, params=missing)
        return run.run_id

    def _of_this_sweep(self) -> list[Held]:
        return self._client.tagged(self.experiment_id, SWEEP, self._key)  # the children do not have this tag

    def _delete_duplicates(self, parent: str) -> None:
        """Keep one parent run, and one child run per trial; note the children that remain."""
        for run in self._of_this_sweep():
            if (other := run.run_id) != parent:
                for child in self._client.tagged(self.experiment_id, PARENT, other):
                    self._client.log(child.run_id, tags={PARENT: parent})
                self._client.delete_run(other)
        children: dict[str, list[Held]] = {}
        for run in self._client.tagged(self.experiment_id, PARENT, parent):
            if IDENTITY in run.tags:
                children.setdefault(run.tags[IDENTITY], []).append(run)
        for runs in children.values():
            runs.sort(key=_rank)
            for run in runs[1:]:
                self._client.delete_run(run.run_id)
        self._children = {identity: _Known.of(runs[0]) for identity, runs in children.items()}


def _client(uri: str, results: Location | Path) -> Client:
    """MLflow's client; of the results folder's own database the quick way to its tables, where they are known."""
    database = own_database(uri, results)
    if database is not None and is_there("mlflow") and knows(database):
        return Tables(database)
    from memsweep.sweep.tracking.client import MlflowsClient

    return MlflowsClient(uri)


@contextlib.contextmanager
def _alone(uri: str, results: Location | Path) -> Iterator[None]:
    """Two processes that create one SQLite file at the same time would leave it unusable."""
    if uri.partition(":")[0] in SERVERS:
        yield
        return
    folder = home(results)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".mlflow.lock", timeout=_LOCK_SECONDS):
        yield


def _rank(run: Held) -> tuple[bool, bool, int, str]:
    """Order in which several runs of the same trial are kept: with a result, then ended, then the oldest."""
    return run.status != "FINISHED", run.status == "RUNNING", run.started, run.run_id
