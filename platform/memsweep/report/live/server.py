"""Serves the live page on loopback: the page, and its events; to nobody who does not know its address."""

from __future__ import annotations

import json
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from memsweep.gate import each_text
from memsweep.report.live.board import Board
from memsweep.report.live.door import refusal

_PATIENCE = 10.0  # seconds that a reader may take for a piece of what it asked for
_FIRST = 120.0  # seconds until the first page is there
_PAUSE, _ALIVE = 1.0, 10.0  # seconds between events at least, and at most
_LAST = 4.0  # seconds that a reader has for the last page, when it has heard of the end
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page's own policy stands in the page
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer(ThreadingHTTPServer):
    """Answers each reader in a thread of its own.

    Args:
        listening: a socket that listens already.
        token: first part of every path.
        board: what is shown.
    """

    daemon_threads = True

    def __init__(self, listening: socket.socket, token: str, board: Board) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.token, self.board = listening, token, board

    def answer(self, connection: socket.socket) -> None:
        """Answers a reader whose connection was accepted before."""
        self.process_request(connection, connection.getpeername())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that was closed is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = _PATIENCE
    server_version, sys_version = "memsweep", ""

    def do_GET(self) -> None:
        """Answers with the page or its events."""
        status = refusal(self.path, self.headers.get("Host") or "", self.server.token)
        if status:
            return self.send_error(status, "This page is for browsers of its own machine" if status == 421 else None)
        return self._events() if self.path.endswith("/events") else self._page()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""

    def _page(self) -> None:
        page = self.server.board.await_page(_FIRST)
        if not page:
            return self.send_error(503, "The page is not there yet; try again")
        self._begin("text/html; charset=utf-8")
        self.wfile.write(page)

    def _events(self) -> None:
        self._begin("text/event-stream")
        for event in self.server.board.events(_PAUSE, _ALIVE):
            text = f"event: {event[0]}\ndata: {json.dumps(each_text(event[1]))}\n\n" if event else ": still there\n\n"
            self.wfile.write(text.encode())
            if event and event[0] == "end":  # the reader fetches the last page, then it leaves
                self.connection.settimeout(_LAST)
                self.rfile.read(1)

    def _begin(self, kind: str) -> None:
        self.send_response(200)
        for name, value in {"Content-Type": kind, **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
