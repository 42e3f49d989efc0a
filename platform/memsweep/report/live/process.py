"""The live page as the process of the sweep sees it: an address to print, and a process to tell the progress to."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from memsweep.report.live.door import await_reader

if TYPE_CHECKING:
    from memsweep.sweep.driver.progress import Snapshot
    from memsweep.sweep.store.filesystem import Location

_INTERVAL = 0.5  # seconds between two lines of progress at least
_MOST = 3000  # bytes of a line; a pipe takes so many at once or none
_BACKLOG = 64  # connections that wait for the process to start
_GRACE = 8.0  # seconds that browsers have for the last page


class LivePage:
    """The page of a running study; nothing that happens to it reaches the sweep.

    Args:
        place: the study's folder.
        study, description: said until the folder has a plan.
        serve: to browsers of this machine.
        write: to the study's folder, in the place of its report.

    Attributes:
        address: of the page; empty where it is not served.
    """

    def __init__(self, place: Location, study: str, description: str, *, serve: bool, write: bool) -> None:
        self.address = ""
        self._token = secrets.token_urlsafe(16)
        self._about = {"place": place.uri, "study": study, "description": description, "write": write}
        self._process: subprocess.Popen[bytes] | None = None
        self._latest: dict[str, Any] = {}
        self._sent = 0.0
        self._lock, self._closed = threading.Lock(), False
        self._report: IO[bytes] | None = None  # who has it locked writes the report
        self._socket: socket.socket | None = None
        if serve:
            with contextlib.suppress(OSError):  # a machine without loopback: the sweep runs without a page
                self._socket = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
                self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}/{self._token}/"
                if not write:
                    threading.Thread(target=self._await_reader, args=(self._socket,), daemon=True).start()
        if write:
            with contextlib.suppress(OSError):
                self._report = tempfile.TemporaryFile()  # noqa: SIM115
                self._start()

    def show(self, snapshot: Snapshot) -> None:
        """Tell the page the state of the run."""
        from memsweep.sweep.driver.progress import time_left

        self.update(
            total=snapshot.total,
            fraction=round(snapshot.fraction, 4),
            left=time_left(snapshot),
            doing=snapshot.doing,
            note=snapshot.note,
        )

    def update(self, **words: Any) -> None:
        """Tell the page how far the run is; costs nothing while nobody looks, and never waits."""
        noted = words.get("note", "") != self._latest.get("note", "")  # it may stay until the end
        self._latest |= words
        if self._process is not None and (noted or time.monotonic() - self._sent >= _INTERVAL):
            self._sent = time.monotonic()
            self._send(self._latest)

    def rest(self) -> None:
        """Leave the study's folder to the finished report; a page that is being written is waited for, or given up."""
        until = time.monotonic() + _GRACE
        while self._report is not None and not has_report(self._report.fileno()):
            if time.monotonic() > until:
                if self._process is not None:
                    self._process.kill()
                return
            time.sleep(0.05)

    def __enter__(self) -> LivePage:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(None, "interrupted" if kind is not None and issubclass(kind, KeyboardInterrupt) else "")

    def close(self, final: Path | None, why: str = "") -> None:
        """End the page.

        Args:
            final: the finished report, which open browsers show now; None where there is none.
            why: said where there is none.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        process = self._process
        if process is not None:
            self._send({"end": {"page": str(final or ""), "why": why}})
            with contextlib.suppress(OSError, ValueError):
                process.stdin.close()  # type: ignore[union-attr]  # it was opened as a pipe
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._socket is not None:
            self._socket.close()
        if self._report is not None:
            self._report.close()

    def _await_reader(self, listening: socket.socket) -> None:
        """Starts the process for the first reader who knows the address: until then a thread sleeps."""
        with contextlib.suppress(OSError, ValueError):  # the socket was closed: nobody came
            reader = await_reader(listening, self._token, lambda: self._closed)
            if reader is not None:
                with reader:
                    self._start(reader)

    def _start(self, reader: socket.socket | None = None) -> None:
        engine = str(Path(__file__).resolve().parents[3])
        paths = os.pathsep.join(filter(None, [engine, os.environ.get("PYTHONPATH")]))
        handles = [each.fileno() if each is not None else None for each in (self._socket, reader, self._report)]
        with self._lock, contextlib.suppress(OSError):  # no process to be had: the sweep needs none
            if self._closed or self._process is not None:
                return
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "memsweep.report.live.reader"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[each for each in handles if each is not None],
                start_new_session=True,  # Ctrl-C is for the sweep, which ends the page
                env={**os.environ, "PYTHONPATH": paths},
            )
            first = {**self._about, "token": self._token, "socket": handles[0], "connection": handles[1]}
            first["report"] = handles[2]
            process.stdin.write(f"{json.dumps(first)}\n".encode())  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            os.set_blocking(process.stdin.fileno(), False)  # type: ignore[union-attr]
            self._process = process
        self._send(self._latest)

    def _send(self, words: dict[str, Any]) -> None:
        """Writes one line; where the pipe is full or the process is gone, the line is left out."""
        line = f"{json.dumps(words)}\n".encode()
        if self._process is not None and len(line) <= _MOST:
            with contextlib.suppress(OSError, ValueError):
                os.write(self._process.stdin.fileno(), line)  # type: ignore[union-attr]


def has_report(lock: int) -> bool:
    """Locks the report for this process, until it unlocks or ends.

    Args:
        lock: handle of a file that both processes have open.

    Returns:
        Whether it has the lock; False where the other process has it.
    """
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
