"""The process behind a live page: reads the study's folder when somebody looks, and ends with the sweep.

Its standard input has lines of JSON: first what the page is about, then the progress, at last the end. A sweep that
died has closed it, which ends this process, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from memsweep.report.live.board import Board
from memsweep.report.live.process import has_report

_SHARE = 20.0
"""A look at the study is followed by a pause of so many times the processor's time that it took."""
_LOOKS, _WRITES = 1.5, 15.0  # seconds between looks, and between two pages that are written, at least
_STALE = 60.0  # seconds after which a page is written although no trial has ended


def main() -> None:
    """Shows a study until its sweep has ended."""
    os.nice(10)
    about = json.loads(sys.stdin.readline())
    board = Board()
    threading.Thread(target=_listen, args=(board,), name="progress", daemon=True).start()
    if about["socket"] is not None:
        from memsweep.report.live.server import PageServer

        server = PageServer(socket.socket(fileno=about["socket"]), about["token"], board)
        if about["connection"] is not None:
            with contextlib.suppress(OSError):  # the first reader is gone already
                server.answer(socket.socket(fileno=about["connection"]))
        threading.Thread(target=server.serve_forever, name="server", daemon=True).start()
    _show(board, about)
    board.await_no_reader(6.0)


def _listen(board: Board) -> None:
    """Takes what the process of the sweep says; its end is the end."""
    for line in sys.stdin:
        try:
            words = json.loads(line)
        except ValueError:  # a line that was cut off
            continue
        if "end" in words:
            return _finish(board, **words["end"])
        board.tell(words)
    _finish(board, "", "the sweep's process is gone")


def _finish(board: Board, page: str, why: str) -> None:
    content = None
    with contextlib.suppress(OSError):
        content = Path(page).read_bytes() if page else None
    board.finish(content, page, why)


def _show(board: Board, about: dict[str, Any]) -> None:
    """Looks at the study again and again, as long as somebody reads, or the page is to be written."""
    from memsweep.report.live.build import LiveStudy

    writes = about["write"]
    study = LiveStudy(about["place"], about["study"], about["description"], int(_WRITES) if writes else 0)
    look, build = _Pace(_WRITES if writes else _LOOKS), _Pace(_WRITES if writes else _LOOKS)
    while not board.ended:
        if not writes:
            board.await_reader(3600.0)
        with look:
            stale = study.look(board.told)
        if (stale and build.due) or (writes and build.waited > _STALE):
            # nothing that befalls a page may end this process: the last one stays until the next can be made
            with build, contextlib.suppress(Exception):
                page = study.page()
                board.show(page)
                if writes and has_report(about["report"]):
                    try:
                        study.write(page)
                    finally:
                        fcntl.lockf(about["report"], fcntl.LOCK_UN)
        board.show(progress=study.progress)
        board.await_end(look.left)


class _Pace:
    """How often something is done: its pauses are 20 times as long as the processor's time that it takes.

    Args:
        least: seconds of a pause at least.
    """

    def __init__(self, least: float) -> None:
        self._least, self._pause = least, 0.0
        self._began = self._ended = time.monotonic()

    def __enter__(self) -> None:
        self._began = time.process_time()

    def __exit__(self, *_: object) -> None:
        self._ended, self._pause = time.monotonic(), max(self._least, _SHARE * (time.process_time() - self._began))

    @property
    def waited(self) -> float:
        """Seconds since it was done last."""
        return time.monotonic() - self._ended

    @property
    def left(self) -> float:
        """Seconds of the pause that are left."""
        return max(self._pause - self.waited, 0.0)

    @property
    def due(self) -> bool:
        """Whether the pause is over."""
        return not self.left


if __name__ == "__main__":
    main()
