"""The manifests' command, started: MLflow with the very command and environment of its deployment."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from kube_manifests import overlay

from paths import ROOT
from processes import wait_for
from s3_server import S3Server
from tracking_server import free_port

USER, PASSWORD, BUCKET = "memsweep", "0f" * 24, "studies"

pytestmark = pytest.mark.drill


def answer(url: str, host: str, user: tuple[str, str] | None = None) -> int:
    """The status of the answer to a GET."""
    headers = {"Host": host}
    if user:
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(user).encode()).decode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@contextmanager
def deployed(container: dict[str, object], folder: Path, given: dict[str, str]) -> Iterator[str]:
    """The container's command with its environment, on a port of this machine alone.

    Args:
        container: from the manifests; what they take from secrets and settings is in ``given``.
        folder: working folder, and place of the log.
        given: variables that the manifests refer to elsewhere, or that belong to another place than a cluster.
    """
    named = yaml.safe_load(yaml.safe_dump(container["env"]))
    environment = {item["name"]: item["value"] for item in named if "value" in item}
    unknown = {item["name"] for item in named} - set(environment) - set(given) - {"MLFLOW_S3_ENDPOINT_URL"}
    assert not unknown, f"say what these are here: {unknown}"
    port = free_port()
    command = [str(word) for word in container["command"]]
    command = [
        {"--host=0.0.0.0": "--host=127.0.0.1", "--port=5000": f"--port={port}"}.get(word, word) for word in command
    ]
    command[:1] = [sys.executable, "-m", "mlflow"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment, **given},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: answer(f"{url}/health", "10.1.2.3:5000") == 200, server.poll, seconds=120)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(timeout=20)


@pytest.mark.s3
@pytest.mark.long
def test_mlflow_as_deployed(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = overlay("cpu")["Deployment", "mlflow"]["spec"]["template"]["spec"]
    database = f"sqlite:///{tmp_path}/mlflow.db"
    auth = (ROOT / "docker" / "mlflow_auth.ini").read_text()
    auth, changed = re.subn(r"^database_uri = .*$", f"database_uri = {database}", auth, flags=re.MULTILINE)
    assert changed == 1
    (tmp_path / "auth.ini").write_text(auth)
    given = {
        **s3.environment(),
        "MLFLOW_BACKEND_STORE_URI": database,
        "MLFLOW_AUTH_CONFIG_PATH": str(tmp_path / "auth.ini"),
        "MLFLOW_AUTH_ADMIN_USERNAME": USER,
        "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "1e" * 24,
        "MLFLOW_ARTIFACTS_DESTINATION": f"s3://{BUCKET}/mlflow",
        "PGPASSWORD": "not used here",
    }
    with deployed(pod["containers"][0], tmp_path, given) as url:
        runs = f"{url}/api/2.0/mlflow/experiments/get?experiment_id=0"
        assert answer(runs, "mlflow:5000") == 401
        assert answer(runs, "mlflow:5000", (USER, "wrong")) == 401
        assert answer(runs, "mlflow:5000", (USER, PASSWORD)) == 200
        assert answer(runs, "evil.example", (USER, PASSWORD)) == 403

        from mlflow import MlflowClient

        for name in s3.environment():  # the client needs no key of the bucket: artifacts go through the server
            monkeypatch.delenv(name)
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", USER)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
        client = MlflowClient(url)
        run = client.create_run(client.create_experiment("drill")).info.run_id
        (tmp_path / "figure.txt").write_text("figure")
        client.log_artifact(run, str(tmp_path / "figure.txt"))
        assert [file.path for file in client.list_artifacts(run)] == ["figure.txt"]

    import boto3

    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    stored = boto3.client("s3").list_objects_v2(Bucket=BUCKET, Prefix="mlflow/")["Contents"]
    assert [Path(entry["Key"]).name for entry in stored] == ["figure.txt"]
