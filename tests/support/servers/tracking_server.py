"""A real MLflow server on a port of its own, with a database and an artifact folder of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

_START_SECONDS = 600.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class MlflowServer:
    """``start``, ``kill`` and ``start`` again: the same address and the same data.

    Args:
        folder: where the log, and unless ``data`` is given the database and the artifacts, lie.
        port: 127.0.0.1's; a free one when None.
        data: folder of the database and the artifacts.
    """

    def __init__(self, folder: Path, port: int | None = None, data: Path | None = None) -> None:
        self.port = port or free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._log = folder / "server.log"
        self._data = data or folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        env = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{self._data}/server.db"]
        command += ["--artifacts-destination", str(self._data / "served")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{self.uri}/health", timeout=2).close()
                return
            except OSError:
                assert self._process.poll() is None, self._log.read_text()
                time.sleep(0.2)
        raise TimeoutError(self._log.read_text())

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the server and its workers."""
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """SIGKILL to the server and its workers, as a power cut would."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=10)
