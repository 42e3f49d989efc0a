"""Between a client and a real S3 server: refuses the requests that it is told to, passes all others on unchanged.

Unchanged means byte for byte, for S3 requests are signed, their host and the pieces of their bodies included.
"""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fault_proxy import request_body
from s3_server import S3Server


class Refusals:
    """The requests that a proxy refuses.

    Attributes:
        pattern: of ``METHOD /path?query``; None refuses nothing. May be exchanged at any time.
        status: HTTP status of a refusal.
        endpoint: the proxy's address.
        requests: all that came, as ``METHOD /path?query``.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.pattern: str | None = None
        self.status = 503
        self.requests: list[str] = []

    def refuses(self, request: str) -> bool:
        self.requests.append(request)
        return self.pattern is not None and re.search(self.pattern, request) is not None


@contextmanager
def refusing(server: S3Server) -> Iterator[Refusals]:
    """A proxy on a free port."""
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    refusals = Refusals(f"http://127.0.0.1:{proxy.server_address[1]}")
    proxy.RequestHandlerClass = _handler(int(server.endpoint.rpartition(":")[2]), refusals)
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield refusals
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join(timeout=5)


def _handler(port: int, refusals: Refusals) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = request_body(self.rfile, self.headers)
            if refusals.refuses(f"{self.command} {self.path}"):
                self._answer(refusals.status, {}, b"", 0)
                return
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "expect":
                    upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            data = answer.read()
            length = int(answer.getheader("Content-Length") or 0) if self.command == "HEAD" else len(data)
            self._answer(answer.status, dict(answer.getheaders()), data, length)
            upstream.close()

        def _answer(self, status: int, headers: dict[str, str], data: bytes, length: int) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    for verb in ("GET", "HEAD", "POST", "PUT", "DELETE"):
        setattr(Handler, f"do_{verb}", Handler._serve)
    return Handler
