"""Who is let in to the live page, and a door that opens to nobody else before its process has started."""

from __future__ import annotations

import contextlib
import hmac
import select
import socket
import time
from collections.abc import Callable

HOSTS = ("127.0.0.1", "localhost")
"""What a browser may call this machine: a page of another name that was bound to this address (DNS rebinding) gets no
answer. Any port: the address may be forwarded (``ssh -L``)."""
NAMES = ("", "events")
"""What there is behind the token of an address: the page, and its events."""
_PATIENCE = 5.0  # seconds that a connection has to say what it wants
_MOST_HEAD = 16384  # bytes of a request's head
_MOST_WAITING = 32  # connections that have not said it yet
_REFUSAL = b"HTTP/1.1 %d Not here\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def refusal(path: str, host: str, token: str) -> int:
    """The status by which a request is refused; 0 for one that names this machine and knows the token."""
    name, colon, port = host.rpartition(":")
    if (name if port.isdigit() and colon else host) not in HOSTS:
        return 421
    known = [hmac.compare_digest(path.encode(), f"/{token}/{name}".encode()) for name in NAMES]
    return 0 if any(known) else 404


def await_reader(listening: socket.socket, token: str, is_closed: Callable[[], bool]) -> socket.socket | None:
    """The first connection whose request is let in, with all of the request still to be read.

    Every other one is refused or, where it says nothing for some seconds, closed.

    Args:
        listening: a socket that listens.
        token: first part of every path.
        is_closed: nobody waits any more; asked every second.

    Returns:
        None where nobody waits any more.
    """
    waiting: dict[socket.socket, float] = {}
    try:
        while not is_closed():
            for ready in select.select([listening, *waiting], [], [], 1.0)[0]:
                if ready is listening:
                    waiting[listening.accept()[0]] = time.monotonic() + _PATIENCE
                elif (status := _asked(ready, token)) == 0:
                    del waiting[ready]
                    return ready
                elif status is not None:
                    _refuse(ready, status)
                    waiting[ready] = 0.0
            late = [each for each, end in waiting.items() if end < time.monotonic()]
            for each in late or [*waiting][: max(len(waiting) - _MOST_WAITING, 0)]:
                waiting.pop(each)
                each.close()
            time.sleep(0.01)  # a head that is there in part is ready again at once
    finally:
        for each in waiting:
            each.close()
    return None


def _asked(connection: socket.socket, token: str) -> int | None:
    """The status of what a connection asks for, 0 where it is let in; None where it has not said all of it yet."""
    try:
        head = connection.recv(_MOST_HEAD, socket.MSG_PEEK)
    except OSError:
        return 400
    lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    if b"\r\n\r\n" not in head:
        return 400 if len(head) >= _MOST_HEAD or not head else None
    words = lines[0].split(" ")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return refusal(words[1], fields.get("host", ""), token) if len(words) == 3 and words[0] == "GET" else 404


def _refuse(connection: socket.socket, status: int) -> None:
    with contextlib.suppress(OSError):
        connection.setblocking(False)
        connection.recv(_MOST_HEAD)  # what was not read would reset the connection, and the answer with it
        connection.send(_REFUSAL % status)
