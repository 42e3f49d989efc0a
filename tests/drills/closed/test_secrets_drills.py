"""Secrets of the environment are in nothing that a sweep writes, prints or shows: real sweeps, and a search."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from memsweep.redaction import REMOVED
from memsweep.sweep.tracking import Tracker
from s3_server import S3Server
from secret_words import PASSWORD, PUBLIC, SECRETS, told, told_below, watched_commands, workspace
from sweeping import environment, memsweep, runs_of
from tracking_server import free_port

pytestmark = pytest.mark.drill


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return workspace(tmp_path / "site")


@pytest.fixture
def sessions() -> Iterator[Path]:
    """Where Ray keeps its logs; a short path, for sockets lie below it."""
    folder = Path(tempfile.mkdtemp(prefix="s", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def sweep(site: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    given = SECRETS | PUBLIC | {"AWS_EC2_METADATA_DISABLED": "true"} | more
    env = environment(**given, TELLTALE=",".join(given))
    return memsweep("sweep", "telltale", "--verbose", *words, cwd=site, env=env)


def check(ended: subprocess.CompletedProcess[str], *folders: Path) -> None:
    assert not told(ended.stdout.encode()), ended.stdout
    assert not told(ended.stderr.encode()), ended.stderr
    assert not told_below(*folders)


def test_on_ray_no_file_no_log_and_no_command_line_holds_a_secret(site: Path, sessions: Path) -> None:
    mark = uuid.uuid4().hex
    with watched_commands(mark) as commands:
        ended = sweep(site, "--ray", RAY_TMPDIR=str(sessions), MEMSWEEP_MARK=mark)
    assert ended.returncode == 1, ended.stderr  # one trial fails, and quotes its environment
    assert "telltale: {" in ended.stderr, ended.stderr
    assert REMOVED in ended.stderr
    (logs,) = {path.parent for path in sessions.rglob("raylet.out")}  # the search looks where Ray writes
    assert len(list(logs.iterdir())) > 5
    _, _, children = runs_of(site / "results")
    assert {run.info.status for run in children} == {"FINISHED", "FAILED"}
    assert any(b"setup_worker" in line for line in commands)
    assert not [line for line in commands if told(line)]
    check(ended, site, sessions)


@pytest.mark.long
def test_a_sweep_without_its_mlflow_keeps_the_password_of_the_address(site: Path) -> None:
    uri = f"http://ada:{PASSWORD}@127.0.0.1:{free_port()}"
    ended = sweep(site, "--inline", MLFLOW_TRACKING_URI=uri)
    assert ended.returncode == 1, ended.stderr
    assert "Not in MLflow yet" in ended.stderr, ended.stderr
    check(ended, site)
    check(memsweep("sync", "telltale", "--verbose", cwd=site, env=environment(MLFLOW_TRACKING_URI=uri)), site)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg2://ada:{}%2Fa%40b@127.0.0.1:{}/mlflow?sslmode=prefer",
        "postgresql+psycopg2://ada:{}/a?b@127.0.0.1:{}/mlflow",
        "postgresql+psycopg2://ada:{}@127.0.0.1:{}x/mlflow",
        "sqlite://ada:{}@127.0.0.1:{}/mlflow",
    ],
)
def test_a_database_that_cannot_be_opened_keeps_the_password_of_its_address(
    address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker = Tracker(address.format(PASSWORD, free_port()), tmp_path, "s", patience=3.0)
    said = tracker.finish("failed", patience=1.0)
    assert "Not in MLflow yet" in said
    assert not told("".join([said, tracker.uri, *capfd.readouterr()]).encode())


@pytest.mark.s3
def test_a_bucket_that_refuses_the_key_is_told_without_it(site: Path, s3_server: S3Server) -> None:
    endpoint = s3_server.environment()["AWS_ENDPOINT_URL"]
    ended = sweep(site, "--inline", "--results", "s3://studies/none", AWS_ENDPOINT_URL=endpoint)
    assert ended.returncode == 4
    assert "refuses to write" in ended.stderr, ended.stderr
    check(ended, site)


def test_a_bucket_behind_an_address_with_a_password_is_told_without_it(site: Path) -> None:
    endpoint = f"http://ada:{PASSWORD}@127.0.0.1:{free_port()}"
    ended = sweep(site, "--inline", "--results", "s3://studies/none", AWS_ENDPOINT_URL=endpoint)
    assert ended.returncode == 4
    check(ended, site)
