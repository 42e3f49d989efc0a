"""Writes runs with MLflow's client: one experiment per study, one parent run per sweep, one child run per trial.

Every call may be made again after an error and ends in the same runs. Where a creation was repeated, by MLflow's client
or by us, two runs may exist: ``close`` deletes all but one.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import requests
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from memsweep import registry
from memsweep.gate import each_text, gated
from memsweep.redaction import redacted, without_secrets
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.tracking.run_content import HEADLINE, IDENTITY, NOTE, OUTCOME, ChildRun, Stamp, Verdicts, sweep_key
from memsweep.sweep.tracking.uri import SERVERS, artifact_location, home, make_whole, mend, run_page

logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # its warnings would fill the terminal

PARENT, SWEEP = "mlflow.parentRunId", "memsweep.sweep"

_LOCK_SECONDS = 120.0
_BATCH = 100
_PAGE = 500  # runs a search asks for at once

_PERMANENT = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "PERMISSION_DENIED"}
_PERMANENT |= {"UNAUTHENTICATED", "ENDPOINT_NOT_FOUND", "INVALID_STATE"}
_GONE = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"}  # MLflow's answers to the second deletion of a run
_BUSY = {408, 429}  # the two of HTTP's 4xx that may succeed later


def _outdated(names: Iterable[str], verdicts: Verdicts) -> list[str]:
    """The tags that an earlier verdict left: a study that was extended has other conditions, or other verdicts."""
    kinds = "|".join(map(re.escape, ("ball", *registry.names(registry.MEASURE))))
    of_verdict = re.compile(rf"(^|/)({kinds})_[^/]+/[^/]+$")
    return [name for name in names if of_verdict.search(name) and name not in verdicts.tags]


class _Client(MlflowClient):
    """MLflow's client, whose texts pass the gate: names of runs, parameters and tags."""

    def create_run(self, *args: Any, **options: Any) -> Run:
        """As of MLflow."""
        options["tags"] = each_text(options.get("tags") or {})
        return super().create_run(*args, **options | {"run_name": gated(options["run_name"])})

    def create_experiment(self, name: str, artifact_location: str | None, tags: Mapping[str, str]) -> str:
        """As of MLflow."""
        return str(super().create_experiment(name, artifact_location, each_text(tags)))

    def log_batch(
        self, run_id: str, metrics: Sequence[Metric] = (), params: Sequence[Param] = (), tags: Sequence[RunTag] = ()
    ) -> None:
        """As of MLflow."""
        shown = [Param(gated(each.key), gated(each.value)) for each in params]
        super().log_batch(run_id, metrics, shown, [RunTag(gated(each.key), gated(each.value)) for each in tags])

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        """As of MLflow."""
        super().set_tag(run_id, gated(key), gated(value))


@dataclass(frozen=True)
class _Known:
    """A child run as MLflow holds it."""

    run_id: str
    stamp: Stamp
    artifacts: str
    values: dict[str, float | str] = field(default_factory=dict)  # metrics and tags

    @classmethod
    def of(cls, run: Run) -> _Known:
        info, data = run.info, run.data
        stamp = Stamp(data.tags.get(OUTCOME, ""), info.status, info.start_time or 0, info.end_time or 0)
        return cls(info.run_id, stamp, str(info.artifact_uri), {**data.metrics, **data.tags})


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
        self._uri, self._description = uri, description
        self._own = f"tags.`{SWEEP}` = '{key}'"  # the children do not have this tag
        self._children: dict[str, _Known] = {}
        with _alone(uri, results):
            make_whole(uri, results)
            self._client = _Client(tracking_uri=uri)
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
        self._client.log_batch(
            begun.run_id,
            metrics=[Metric(point.key, point.value, child.stamp.ended, point.step) for point in child.metrics],
            params=[Param(key, value) for key, value in child.params.items()],
            tags=[RunTag(key, value) for key, value in child.tags.items() if begun.values.get(key) != value],
        )
        with tempfile.TemporaryDirectory(prefix="memsweep-") as folder:
            for name, data in child.artifacts.items():
                (Path(folder) / name).write_bytes(data)
            # not the client's log_artifacts, which asks for the run once more
            get_artifact_repository(begun.artifacts, tracking_uri=self._uri).log_artifacts(folder)
        self._client.set_terminated(begun.run_id, child.stamp.status, child.stamp.ended)
        self._children[child.identity] = replace(begun, stamp=child.stamp)

    def write_verdicts(self, identity: str, verdicts: Verdicts) -> None:
        """Add to the run of a trial what its finished study says about it; does nothing if that is there."""
        known = self._children[identity]
        values: dict[str, float | str] = {**verdicts.metrics, **verdicts.tags}
        outdated = _outdated([name for name, value in known.values.items() if isinstance(value, str)], verdicts)
        if values.items() <= known.values.items() and not outdated:
            return
        metrics = [Metric(key, value, verdicts.time, 0) for key, value in verdicts.metrics.items()]
        self._client.log_batch(known.run_id, metrics, tags=[RunTag(*tag) for tag in verdicts.tags.items()])
        if any(known.values.get(key, value) != value for key, value in verdicts.metrics.items()):
            self._show(self._client.get_run(known.run_id), verdicts)
        known.values.update(values)
        for name in outdated:
            self._client.delete_tag(known.run_id, name)
            if name not in verdicts.metrics:
                del known.values[name]

    def write_report(self, folder: Path, about: Verdicts | None = None) -> None:
        """Copy a folder to the artifacts of the parent run, as ``report/``, and add what the study says to that run.

        Raises:
            FileNotFoundError: there is no such folder (MLflow itself would say nothing).
        """
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no report in {folder}")
        artifacts = str(self._client.get_run(self.parent_id).info.artifact_uri)
        # not the client's log_artifacts, which remembers where they were before the results folder was copied
        get_artifact_repository(artifacts, tracking_uri=self._uri).log_artifacts(str(folder), "report")
        page = run_page(self.experiment_id, self.parent_id, "report/index.html")
        said = about.tags.get(HEADLINE, "") if about is not None else ""
        texts = [self._description, said, f"[The report with its verdicts]({page[1:]})"]
        self._client.set_tag(self.parent_id, NOTE, "\n\n".join(filter(None, texts)))
        if about is not None:
            self._write_study(about)

    def _write_study(self, about: Verdicts) -> None:
        """Metrics and tags of the parent run, in the largest batches that MLflow takes."""
        tags = [RunTag(*tag) for tag in about.tags.items()]
        metrics = [Metric(name, value, about.time, 0) for name, value in about.metrics.items()]
        for start in range(0, max(len(tags), len(metrics)), _BATCH):
            part = slice(start, start + _BATCH)
            self._client.log_batch(self.parent_id, metrics[part], tags=tags[part])
        run = self._client.get_run(self.parent_id)
        self._show(run, about)
        for name in _outdated(run.data.tags, about):
            self._client.delete_tag(self.parent_id, name)

    def _show(self, run: Run, about: Verdicts) -> None:
        """Write again what MLflow does not show: of a metric it shows the latest time, and of one time the largest."""
        now = int(1000 * time.time())
        hidden = [
            Metric(name, value, now, 0)
            for name, value in about.metrics.items()
            if math.isfinite(value) and run.data.metrics.get(name) != value
        ]
        for start in range(0, len(hidden), _BATCH):
            self._client.log_batch(run.info.run_id, hidden[start : start + _BATCH])

    def close(self, status: str, keep: Collection[str] | None) -> None:
        """End the parent run (FINISHED, FAILED or KILLED), after the duplicates are deleted.

        Args:
            status: its end.
            keep: the trials whose runs stay; None for all.
        """
        self._delete_duplicates(self.parent_id)
        for identity in sorted(self._children.keys() - (self._children.keys() if keep is None else set(keep))):
            self._delete(self._children.pop(identity).run_id)
        self._client.set_terminated(self.parent_id, status)

    def _run_of(self, child: ChildRun) -> _Known:
        """The run of a trial to write to; a new one if there is none that was begun for this result."""
        known = self._children.get(child.identity)
        begun = replace(child.stamp, status="RUNNING", ended=0)
        if known is not None and known.stamp == begun:
            return known
        if known is not None:  # its start and its artifacts cannot be changed
            self._delete(known.run_id)
            del self._children[child.identity]
        tags = child.tags | {PARENT: self.parent_id}
        run = self._client.create_run(self.experiment_id, child.stamp.started, tags=tags, run_name=child.name)
        self._children[child.identity] = known = _Known.of(run)
        return known

    def _experiment(self, study: str, note: Mapping[str, str], artifacts: str | None) -> str:
        found = self._client.get_experiment_by_name(study)
        if found is None:
            # Without the kind MLflow's page guesses one, and opens on traces of language models.
            tags = {"mlflow.experimentKind": "custom_model_development", **note}
            with contextlib.suppress(MlflowException):  # an attempt whose answer was lost, or another process, made it
                return str(self._client.create_experiment(study, artifacts, tags))
            found = self._client.get_experiment_by_name(study)
            if found is None:
                raise ConnectionError(f"MLflow did not create the experiment {study!r}")
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def _parent(self, study: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        run = min(self._search(self._own), key=_rank, default=None)
        if run is None:
            run = self._client.create_run(self.experiment_id, tags=dict(tags), run_name=study)
        else:
            self._delete_duplicates(run.info.run_id)
        run_id = str(run.info.run_id)
        if run.info.status != "RUNNING":
            self._client.set_terminated(run_id, "RUNNING", run.info.end_time)  # one request; update_run makes two
        if missing := [Param(name, value) for name, value in params.items() if name not in run.data.params]:
            self._client.log_batch(run_id, params=missing)
        return run_id

    def _delete_duplicates(self, parent: str) -> None:
        """Keep one parent run, and one child run per trial; note the children that remain."""
        for run in self._search(self._own):
            if (other := run.info.run_id) != parent:
                for child in self._search(f"tags.`{PARENT}` = '{other}'"):
                    self._client.set_tag(child.info.run_id, PARENT, parent)
                self._delete(other)
        children: dict[str, list[Run]] = {}
        for run in self._search(f"tags.`{PARENT}` = '{parent}'"):
            if IDENTITY in run.data.tags:
                children.setdefault(run.data.tags[IDENTITY], []).append(run)
        for runs in children.values():
            runs.sort(key=_rank)
            for run in runs[1:]:
                self._delete(run.info.run_id)
        self._children = {identity: _Known.of(runs[0]) for identity, runs in children.items()}

    def _delete(self, run_id: str) -> None:
        try:
            self._client.delete_run(run_id)
        except MlflowException as error:
            if error.error_code not in _GONE:
                raise

    def _search(self, condition: str) -> list[Run]:
        runs: list[Run] = []
        token: str | None = None
        while token is None or token:
            found = self._client.search_runs(
                [self.experiment_id], condition, ViewType.ACTIVE_ONLY, _PAGE, page_token=token
            )
            runs += found
            token = found.token or ""
        return runs


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


def _rank(run: Run) -> tuple[bool, bool, int, str]:
    """Order in which several runs of the same trial are kept: with a result, then ended, then the oldest."""
    status = run.info.status
    return status != "FINISHED", status == "RUNNING", run.info.start_time or 0, str(run.info.run_id)


def is_transient(error: Exception) -> bool:
    """Whether the same call may succeed later: the server is away, the database is busy, the disk is full."""
    if isinstance(error, MlflowException):
        return error.error_code not in _PERMANENT
    if isinstance(error, requests.exceptions.HTTPError) and error.response is not None:
        return error.response.status_code >= 500 or error.response.status_code in _BUSY
    # requests' and the lock's errors are OSErrors too; a path that is missing or forbidden stays so.
    return isinstance(error, OSError) and not isinstance(error, FileNotFoundError | PermissionError)


def reason(error: Exception, uri: str) -> str:
    """The cause of an error, as a short text without secrets."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, requests.exceptions.RetryError) and (code := re.search(r"too many (\d+) error", str(link))):
            return f"{redacted(uri)} answered with HTTP status {code[1]}"
        if isinstance(link, requests.exceptions.ConnectionError | requests.exceptions.Timeout):
            return f"no answer from {redacted(uri)}"
        link = link.__cause__ or link.__context__
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {without_secrets(first.replace(uri, redacted(uri)))[:200]}"
