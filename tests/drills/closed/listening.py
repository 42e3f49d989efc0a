"""Which sockets processes listen on, and what answers there to somebody who has no token."""

from __future__ import annotations

import ipaddress
import os
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import grpc

_LISTENS = "0A"


@dataclass(frozen=True)
class Listener:
    """A TCP socket that waits for connections."""

    pid: int
    name: str
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int

    @property
    def on_loopback(self) -> bool:
        """Whether nobody but this machine reaches it."""
        mapped = getattr(self.address, "ipv4_mapped", None)
        return bool((mapped or self.address).is_loopback)

    @property
    def here(self) -> str:
        """``host:port`` by which this machine reaches it."""
        anywhere = self.address.is_unspecified or self.address.version == 6
        return f"{'127.0.0.1' if anywhere else self.address}:{self.port}"


def listeners(pids: Iterable[int]) -> list[Listener]:
    """The TCP sockets on which these processes listen, by IPv4 and IPv6."""
    owners = {inode: pid for pid in pids for inode in _sockets(pid)}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENS and words[9] in owners:
                place, _, port = words[1].partition(":")
                pid = owners[words[9]]
                found.append(Listener(pid, _name(pid), _address(place), int(port, 16)))
    return found


def rpc(where: str, method: str, token: str | None = None, timeout: float = 20.0) -> str:
    """The answer of a gRPC server to an empty request: ``OK``, or the name of the status."""
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(where) as channel:
        call = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
        try:
            call(b"", timeout=timeout, metadata=metadata)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def http(where: str, path: str, token: str | None = None, method: str = "GET") -> int:
    """The status of an HTTP server's answer; 0 where what answers does not speak HTTP."""
    return fetched(where, path, token, method)[0]


def fetched(where: str, path: str, token: str | None = None, method: str = "GET") -> tuple[int, str]:
    """Status and text of an HTTP server's answer; 0 where what answers does not speak HTTP."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://{where}{path}", headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status), answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, ""
    except (OSError, ValueError, HTTPException):
        return 0, ""


def _sockets(pid: int) -> list[str]:
    found = []
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            target = os.readlink(entry.path)
            if target.startswith("socket:["):
                found.append(target[8:-1])
    except OSError:  # it ended meanwhile
        pass
    return found


def _name(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return next((os.path.basename(word) for word in words if word and not word.endswith("python")), words[0])


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """As the kernel writes it: words of four bytes, each in the machine's own order."""
    raw = bytes.fromhex(text)
    turned = b"".join(raw[place : place + 4][::-1] for place in range(0, len(raw), 4))
    return ipaddress.ip_address(turned)
