"""Downloads a published file: resumed where it was cut off, checked, and there under its name only when it is whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.errors import BlockedError
from memsweep.project.published import PublishedFile

if TYPE_CHECKING:
    import requests

_BLOCK = 1 << 20  # bytes read at a time
_PATIENCE = 60.0  # seconds without a byte after which a connection is given up
Progress = Callable[[int, int], None]
"""Called with the bytes so far and the bytes of the whole file (0: unknown)."""


class FetchError(BlockedError):
    """Published data that could not be fetched; what is on disk is as it was."""


def download(file: PublishedFile, target: Path, expected: str, source: str, progress: Progress) -> str:
    """Brings a file to ``target``, unless it is there already, and checks it.

    Args:
        file: what to fetch.
        target: where it goes. The part that is there so far lies beside it, as ``<name>.part``.
        expected: ``sha256:...`` or ``md5:...``; empty where nothing is known.
        source: where the expected checksum is from, for the message.
        progress: called as bytes come.

    Returns:
        Its SHA-256, in hexadecimal digits.

    Raises:
        FetchError: no address gives the file, or it has another checksum (what came is then deleted).
    """
    if not target.is_file():
        _from_any_address(file, target, progress)
    got = _digest(target, expected.partition(":")[0] or "sha256")
    if expected and got != expected:
        target.unlink()
        raise FetchError(
            f"{file.name} has the checksum {got}, and {source} it has {expected}: it was damaged on its way, or "
            "replaced at its address. What came was deleted; nothing else has changed. Run the command again."
        )
    return (got if got.startswith("sha256") else _digest(target, "sha256")).partition(":")[2]


def _digest(path: Path, algorithm: str) -> str:
    """``sha256:...`` or ``md5:...`` of a file."""
    state = hashlib.new(algorithm, usedforsecurity=False)  # it recognizes a file, and protects nothing
    with path.open("rb") as content:
        while block := content.read(_BLOCK):
            state.update(block)
    return f"{algorithm}:{state.hexdigest()}"


def _from_any_address(file: PublishedFile, target: Path, progress: Progress) -> None:
    import requests
    import urllib3

    failures = []
    for address in file.addresses:
        try:
            _from(address, target, progress)
            return
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            failures.append(f"  - {address}: {_reason(error)}")
    raise FetchError(
        "\n".join(
            [
                f"{file.name} could not be fetched:",
                *failures,
                "Run the command again: it goes on where it stopped. Or get the file by other means, put it at "
                f"{target}, and run the command: the file is then checked and unpacked.",
            ]
        )
    )


def _reason(error: Exception) -> str:
    """One line about a failed download."""
    import requests
    import urllib3

    if isinstance(error, requests.HTTPError):
        return str(error).partition(" for url")[0]
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return f"no answer for {_PATIENCE:.0f} s"
    if isinstance(error, urllib3.exceptions.ProtocolError | requests.exceptions.ChunkedEncodingError):
        return "the connection was cut off"
    return f"cannot be reached ({type(error).__name__})"


def _from(address: str, target: Path, progress: Progress) -> None:
    """Download from one address; goes on with the part that is there, where the server has the same file."""
    import requests

    part, mark = target.with_name(f"{target.name}.part"), target.with_name(f"{target.name}.part.etag")
    done = part.stat().st_size if part.is_file() and mark.is_file() else 0
    headers = {"Accept-Encoding": "identity"}
    if done:
        headers |= {"Range": f"bytes={done}-", "If-Range": mark.read_text("utf-8")}
    with requests.get(address, headers=headers, stream=True, timeout=_PATIENCE) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable:
            mark.unlink()
            return _from(address, target, progress)
        response.raise_for_status()
        if response.status_code != requests.codes.partial_content:
            done = 0
        whole = _size(response, done)
        tag = response.headers.get("ETag", "")
        mark.unlink(missing_ok=True)
        if tag and not tag.startswith("W/"):  # only a strong tag says that the bytes are the same
            mark.write_text(tag, "utf-8")
        with part.open("ab" if done else "wb") as out:
            for block in response.raw.stream(_BLOCK, decode_content=False):
                out.write(block)
                done += len(block)
                progress(done, whole)
    if whole and done != whole:
        raise requests.exceptions.ChunkedEncodingError(f"{done} of {whole} bytes")
    mark.unlink(missing_ok=True)
    part.replace(target)


def _size(response: requests.Response, done: int) -> int:
    """Bytes of the whole file; 0 where the server does not say."""
    return done + int(response.headers.get("Content-Length") or -done)
