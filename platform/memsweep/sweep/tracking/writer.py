"""Runs in MLflow, through its client: one experiment a study, one parent run a sweep, one child run a trial.

Everything can be repeated: after a failed call the same call again ends in the same runs.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import requests
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Experiment, Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException

from memsweep.sweep.tracking.mirror import IDENTITY, NOTE, ChildRun, sweep_key
from memsweep.sweep.tracking.place import SERVERS, artifact_location, redacted

PARENT, SWEEP = "mlflow.parentRunId", "memsweep.sweep"

_PERMANENT = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "PERMISSION_DENIED"}
_PERMANENT |= {"UNAUTHENTICATED", "ENDPOINT_NOT_FOUND", "INVALID_STATE"}
_LOCK_SECONDS = 120.0


class Writer:
    """The runs of one sweep. Used by one thread; every method may raise what MLflow raises.

    Args:
        uri: tracking URI of a server or a database.
        results: results folder: the home of the artifacts when ``uri`` is a database.
        study: name of the experiment.
        description: shown on the experiment and on the parent run.
        params: flat settings of the sweep, for the parent run.
        tags: of the parent run; a sweep with the same params and tags continues its parent run.
    """

    def __init__(
        self, uri: str, results: Path, study: str, description: str, params: Mapping[str, Any], tags: Mapping[str, Any]
    ) -> None:
        self._uri, self._results, self._study, self._description = uri, results, study, description
        self._params = {name: str(value) for name, value in params.items()}
        self._tags = {name: str(value) for name, value in tags.items()}
        self._runs: dict[str, str] = {}  # identity -> run id
        self._complete: set[str] = set()  # identities whose run has everything
        self._unsure: set[str] = set()  # identities whose run may exist although the call failed
        self._client: MlflowClient | None = None
        self.experiment_id: str | None = None
        self.parent_id: str | None = None

    def open(self) -> None:
        """Create (or find) database, experiment and parent run, and the children that an earlier try wrote."""
        if self.parent_id is not None:
            return
        with self._alone():
            self._client = MlflowClient(tracking_uri=self._uri)
            experiment = self._experiment(self._client)
            self.experiment_id = experiment.experiment_id
            parent = self._parent(self._client, experiment.experiment_id)
        for run in self._search(f"tags.`{PARENT}` = '{parent}'"):
            identity = run.data.tags.get(IDENTITY)
            if identity is not None:
                self._runs[identity] = run.info.run_id
                if run.info.status == "FINISHED":
                    self._complete.add(identity)
        self.parent_id = parent

    def has(self, identity: str) -> bool:
        """Whether the result of this trial is there already."""
        self.open()
        return identity in self._complete

    def write(self, child: ChildRun) -> None:
        """Write the run of a trial; does nothing when its result is there already."""
        if self.has(child.identity):
            return
        client, parent = self._opened()
        tags = child.tags | {PARENT: parent}
        run_id = self._runs.get(child.identity) or self._found(child.identity)
        if run_id is None:
            self._unsure.add(child.identity)
            run = client.create_run(self.experiment_id, child.started, tags, run_name=child.name)
            self._unsure.discard(child.identity)
            self._runs[child.identity] = run_id = run.info.run_id
            tags = {}  # the run was born with them
        client.log_batch(
            run_id,
            metrics=[Metric(point.key, point.value, child.ended, point.step) for point in child.metrics],
            params=[Param(key, value) for key, value in child.params.items()],
            tags=[RunTag(key, value) for key, value in tags.items()],
        )
        with tempfile.TemporaryDirectory(prefix="memsweep-") as folder:
            for name, data in child.artifacts.items():
                (Path(folder) / name).write_bytes(data)
            client.log_artifacts(run_id, folder)
        client.set_terminated(run_id, child.status, child.ended)
        if child.status == "FINISHED":
            self._complete.add(child.identity)

    def write_report(self, folder: Path) -> None:
        """Copy a folder to the artifacts of the parent run, as ``report/``.

        Raises:
            FileNotFoundError: there is no such folder (MLflow itself would say nothing).
        """
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no report in {folder}")
        client, parent = self._opened()
        client.log_artifacts(parent, str(folder), "report")

    def close(self, status: str) -> None:
        """End the parent run: FINISHED, FAILED or KILLED."""
        client, parent = self._opened()
        client.set_terminated(parent, status)

    def _experiment(self, client: MlflowClient) -> Experiment:
        experiment = client.get_experiment_by_name(self._study)
        if experiment is None:
            try:
                identity = client.create_experiment(self._study, artifact_location(self._uri, self._results))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":  # a sweep on another machine was faster
                    raise
            else:
                # Without it the page guesses, and opens on traces of language models.
                client.set_experiment_tag(identity, "mlflow.experimentKind", "custom_model_development")
                if self._description:
                    client.set_experiment_tag(identity, NOTE, self._description)
            experiment = client.get_experiment_by_name(self._study)
        elif experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
        return experiment

    def _parent(self, client: MlflowClient, experiment_id: str) -> str:
        key = sweep_key(self._study, self._params, self._tags)
        # Runs whose own tag says so: the children do not have it.
        known = self._search(f"tags.`{SWEEP}` = '{key}'")
        if known:
            run_id: str = known[0].info.run_id
            client.update_run(run_id, status="RUNNING")
            return run_id
        tags = {**self._tags, SWEEP: key, "mlflow.source.name": f"memsweep sweep {self._study}"}
        if self._description:
            tags[NOTE] = self._description
        run_id = client.create_run(experiment_id, tags=tags, run_name=self._study).info.run_id
        client.log_batch(run_id, params=[Param(name, value) for name, value in self._params.items()])
        return run_id

    def _found(self, identity: str) -> str | None:
        """The run that a call created although it seemed to fail."""
        if identity not in self._unsure:
            return None
        runs = self._search(f"tags.`{PARENT}` = '{self.parent_id}' and tags.`{IDENTITY}` = '{identity}'")
        return runs[0].info.run_id if runs else None

    def _search(self, condition: str) -> list[Run]:
        client = self._client
        assert client is not None
        found: list[Run] = []
        token: str | None = None
        while token is None or token:
            page = client.search_runs([self.experiment_id], condition, ViewType.ACTIVE_ONLY, 1000, page_token=token)
            found += page
            token = page.token or ""
        return found

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
        self._results.mkdir(parents=True, exist_ok=True)
        with FileLock(self._results / ".mlflow.lock", timeout=_LOCK_SECONDS):
            yield


def is_transient(error: Exception) -> bool:
    """Whether the same call may succeed later: the server is away, the database is busy, the disk is full."""
    if isinstance(error, MlflowException):
        return error.error_code not in _PERMANENT
    # requests' and the lock's errors are OSErrors too; a path that is missing or forbidden stays so.
    return isinstance(error, OSError) and not isinstance(error, FileNotFoundError | PermissionError)


def reason(error: Exception, uri: str) -> str:
    """The cause in a few words."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, requests.exceptions.ConnectionError | requests.exceptions.Timeout):
            return f"no answer from {redacted(uri)}"
        link = link.__cause__ or link.__context__
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {first[:200].replace(uri, redacted(uri))}"
