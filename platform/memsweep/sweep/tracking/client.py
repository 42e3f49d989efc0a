"""MLflow's own client, for servers and any database; its texts pass the gate: names of runs, parameters and tags."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from memsweep.gate import each_text, gated
from memsweep.sweep.tracking.held import Held, Value

logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # its warnings would fill the terminal

_PAGE = 500  # runs a search asks for at once
_GONE = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"}  # MLflow's answers to the second deletion of a run


class MlflowsClient:
    """Writes and reads by MLflow's client; a ``Client``.

    Args:
        uri: tracking URI of a server or a database.
    """

    def __init__(self, uri: str) -> None:
        self._uri, self._client = uri, MlflowClient(tracking_uri=uri)

    def experiment(self, name: str) -> str | None:
        """As of ``Client``."""
        if (found := self._client.get_experiment_by_name(name)) is None:
            return None
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def create_experiment(self, name: str, artifacts: str | None, tags: Mapping[str, str]) -> str | None:
        """As of ``Client``."""
        try:
            return str(self._client.create_experiment(name, artifacts, each_text(tags)))
        except MlflowException:  # an attempt whose answer was lost, or another process, made it
            return None

    def create_run(self, experiment: str, started: int | None, tags: Mapping[str, str], name: str) -> Held:
        """As of ``Client``."""
        return _held(self._client.create_run(experiment, started, each_text(tags), gated(name)))

    def log(
        self, run: str, metrics: Sequence[Value] = (), params: Mapping[str, str] = {}, tags: Mapping[str, str] = {}
    ) -> None:
        """As of ``Client``."""
        self._client.log_batch(
            run,
            [Metric(*each) for each in metrics],
            [Param(gated(key), gated(value)) for key, value in params.items()],
            [RunTag(gated(key), gated(value)) for key, value in tags.items()],
        )

    def delete_tag(self, run: str, key: str) -> None:
        """As of ``Client``."""
        self._client.delete_tag(run, key)

    def save(self, held: Held, folder: Path, below: str = "") -> None:
        """As of ``Client``."""
        # not the client's log_artifacts, which asks for the run once more
        get_artifact_repository(held.artifacts, tracking_uri=self._uri).log_artifacts(str(folder), below or None)

    def end(self, run: str, status: str, ended: int | None = None) -> None:
        """As of ``Client``."""
        self._client.set_terminated(run, status, ended)  # one request; update_run makes two

    def delete_run(self, run: str) -> None:
        """As of ``Client``."""
        try:
            self._client.delete_run(run)
        except MlflowException as error:
            if error.error_code not in _GONE:
                raise

    def tagged(self, experiment: str, key: str, value: str) -> list[Held]:
        """As of ``Client``."""
        runs: list[Held] = []
        token: str | None = None
        while token is None or token:
            found = self._client.search_runs(
                [experiment], f"tags.`{key}` = '{value}'", ViewType.ACTIVE_ONLY, _PAGE, page_token=token
            )
            runs += map(_held, found)
            token = found.token or ""
        return runs

    def run(self, run: str) -> Held:
        """As of ``Client``."""
        return _held(self._client.get_run(run))


def _held(run: Run) -> Held:
    info, data = run.info, run.data
    return Held(
        str(info.run_id),
        info.status,
        info.start_time or 0,
        info.end_time,
        str(info.artifact_uri),
        data.metrics,
        data.params,
        data.tags,
    )
