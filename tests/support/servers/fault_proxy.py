"""An HTTP proxy that breaks what it is told to break, between a client and a real server.

``FaultProxy.rule`` is asked at each request, with its number (from 1), method and path, and answers with the fault. All
other requests pass byte for byte: those of S3 are signed, their host and the pieces of their bodies included.
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO


@dataclass(frozen=True)
class Fault:
    """The harm done to one request; the fields may be combined.

    Attributes:
        before: seconds before the server sees the request: it may commit after the client has given up.
        after: seconds before the client sees the answer.
        status: answer this and do not forward.
        body: of that answer.
        reset: break the connection and do not forward.
        cut: forward, then break the connection in the middle of the answer: the server has committed.
    """

    before: float = 0.0
    after: float = 0.0
    status: int = 0
    body: bytes = b"a fault was injected here"
    reset: bool = False
    cut: bool = False


NO_FAULT = Fault()
Rule = Callable[[int, str, str], Fault]


def healthy(number: int, method: str, path: str) -> Fault:
    """Break nothing."""
    return NO_FAULT


class FaultProxy:
    """A proxy on a free port of 127.0.0.1, as a context manager.

    Args:
        port: of the real server on 127.0.0.1; it need not run.
        rule: which request meets which fault; may be exchanged at any time.

    Attributes:
        requests, injected: how many requests came, and how many of them met a fault.
    """

    def __init__(self, port: int, rule: Rule = healthy) -> None:
        self._upstream = port
        self.rule = rule
        self.requests = self.injected = 0
        self._count = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def _fault(self, method: str, path: str) -> Fault:
        with self._count:
            self.requests += 1
            fault = self.rule(self.requests, method, path)
            self.injected += fault != NO_FAULT
            return fault

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=120)
        try:
            connection.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
            for name, value in handler.headers.items():
                if name.lower() not in {"expect", "connection"}:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            data = answer.read()
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
            length = str(len(data))
            if handler.command == "HEAD":
                length = answer.getheader("Content-Length") or "0"
            return answer.status, [*kept, ("Content-Length", length)], data
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = request_body(self.rfile, self.headers)
                fault = proxy._fault(self.command, self.path)
                time.sleep(fault.before)
                if fault.reset:
                    self._break()
                    return
                if fault.status:
                    told = b"" if self.command == "HEAD" else fault.body
                    kind = "application/xml" if told.startswith(b"<") else "text/plain"
                    self._answer(fault.status, [("Content-Type", kind), ("Content-Length", str(len(told)))], told)
                    return
                try:
                    status, headers, data = proxy._forward(self, body)
                except OSError:
                    self._break()
                    return
                time.sleep(fault.after)
                if fault.cut:
                    self._answer(status, headers, data, sent=len(data) // 2)
                    self._break()
                else:
                    self._answer(status, headers, data)

            def _answer(
                self, status: int, headers: list[tuple[str, str]], data: bytes, sent: int | None = None
            ) -> None:
                self.send_response_only(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data[:sent])

            def _break(self) -> None:
                """A reset, not an orderly end."""
                self.wfile.flush()
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (OSError, ValueError):  # the client has given up, or we broke the connection
                    self.close_connection = True

            def finish(self) -> None:
                try:
                    super().finish()
                except (OSError, ValueError):
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                pass

        for verb in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
            setattr(Handler, f"do_{verb}", Handler._serve)
        return Handler


_HOP = {"connection", "content-length", "transfer-encoding", "keep-alive"}
"""Headers of an answer that are of one hop; lengths are set anew."""


def request_body(stream: BinaryIO, headers: Any) -> bytes:
    """The body as it came, with the marks of its pieces."""
    if "chunked" not in (headers.get("Transfer-Encoding") or ""):
        return stream.read(int(headers.get("Content-Length") or 0))
    raw = b""
    while True:
        line = stream.readline()
        raw += line
        if size := int(line.split(b";")[0], 16):
            raw += stream.read(size + 2)
            continue
        while line not in (b"\r\n", b""):
            line = stream.readline()
            raw += line
        return raw
