"""The servers of a real cluster, here on free ports of this machine: S3 (Swift), PostgreSQL, and MLflow on it."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from benchmarks.harness import ROOT
from benchmarks.scale.proc import children, tree_cpu

SWIFT = Path(os.environ.get("MEMSWEEP_CI_CACHE", Path.home() / ".cache" / "memsweep-ci")) / "swift" / "bin"
BUCKET = "scale"
_START_SECONDS = 120.0


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Attributes:
        uri: where it listens.
        processes: roots of its process tree.
    """

    uri: str
    processes: tuple[int, ...]

    def cpu(self) -> float:
        """CPU seconds that it and all below it have used."""
        return sum(map(tree_cpu, self.processes))


@contextmanager
def s3(folder: Path) -> Iterator[Server]:
    """A server with an empty bucket; the variables by which any client finds it are set meanwhile."""
    server_module = tests_module("s3_server")
    folder.mkdir(parents=True)
    known = set(children())
    with server_module.running(SWIFT, folder) as server:
        server.make_bucket(BUCKET)
        own = tuple(pid for pid in children() if pid not in known)
        before = dict(os.environ)
        os.environ.update(server.environment())
        try:
            yield Server(f"s3://{BUCKET}", own)
        finally:
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def postgres(folder: Path) -> Iterator[Server]:
    """A PostgreSQL of Debian's package with an empty database ``mlflow``; as root it runs as the user ``postgres``."""
    (port,) = tests_module("s3_server")._free_ports(1)
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    folder.mkdir(parents=True)
    password, pwfile = secrets.token_hex(16), folder / "password"
    pwfile.write_text(password)
    if os.getuid() == 0:
        user = pwd.getpwnam("postgres")
        for path in (folder, pwfile):
            os.chown(path, user.pw_uid, user.pw_gid)
    data, socket = folder / "data", f"-k {folder}"
    _as_postgres(
        programs / "initdb", "-D", data, "-U", "mlflow", f"--pwfile={pwfile}", "-A", "scram-sha-256", "-E", "UTF8"
    )
    _as_postgres(
        programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", f"-p {port} -h 127.0.0.1 {socket}", "start"
    )
    try:
        _make_database(port, password)
        pid = int((data / "postmaster.pid").read_text().splitlines()[0])
        yield Server(f"postgresql+psycopg2://mlflow:{password}@127.0.0.1:{port}/mlflow", (pid,))
    finally:
        _as_postgres(programs / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")


@contextmanager
def mlflow(folder: Path, database: str, workers: int = 1, artifacts: str | None = None) -> Iterator[Server]:
    """An MLflow server on a database.

    Args:
        folder: an empty folder, for its log and its artifacts.
        database: a SQLAlchemy URI.
        workers: processes that answer.
        artifacts: where artifacts go (None: the folder).
    """
    (port,) = tests_module("s3_server")._free_ports(1)
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", str(workers), "--backend-store-uri", database]
    command += ["--artifacts-destination", artifacts or str(folder / "served")]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    # MLflow's own client of S3 (boto3) reads another name
    quiet |= {"MLFLOW_S3_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"]} if "AWS_ENDPOINT_URL" in os.environ else {}
    log = folder / "server.log"
    with log.open("ab") as sink:
        process = subprocess.Popen(command, env=os.environ | quiet, stdout=sink, stderr=sink, start_new_session=True)
    try:
        _answers(f"http://127.0.0.1:{port}/health", process, log)
        yield Server(f"http://127.0.0.1:{port}", (process.pid,))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < limit:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"MLflow did not start: {log.read_text(errors='replace')[-2000:]}")


def _make_database(port: int, password: str) -> None:
    import psycopg2

    connection = psycopg2.connect(host="127.0.0.1", port=port, user="mlflow", password=password, dbname="postgres")
    connection.autocommit = True
    connection.cursor().execute("CREATE DATABASE mlflow")
    connection.close()


def _as_postgres(*command: str | Path) -> None:
    """PostgreSQL refuses to run as root."""
    other = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    done = subprocess.run([*other, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name}: {done.stdout.decode(errors='replace')[-2000:]}")


def tests_module(name: str) -> ModuleType:
    """A module of tests/support/servers, which knows how to start a server."""
    import importlib

    if (folder := str(ROOT / "tests" / "support" / "servers")) not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def missing() -> list[str]:
    """Names what has to be installed first, in words; empty where all is there."""
    needs = {
        "Swift (make ci-deps)": (SWIFT / "swift-proxy-server").exists(),
        "PostgreSQL (Debian's package postgresql)": any(Path("/usr/lib/postgresql").glob("*/bin/initdb")),
        "runuser": os.getuid() != 0 or shutil.which("runuser") is not None,
    }
    return [name for name, there in needs.items() if not there]
