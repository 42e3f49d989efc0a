"""Downloads a published file: resumed where it was cut off, checked, and there under its name only when it is whole.

A server may send anything. So a download ends at the first byte beyond the size that is known of the file, at a pace
that would last for days, and at an address that is no web address.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.errors import BlockedError
from memsweep.project.published import PublishedFile

if TYPE_CHECKING:
    import requests

_BLOCK = 1 << 20  # bytes read at a time
_PATIENCE = 60.0  # seconds without a byte after which a connection is given up
_SLOWEST = 1024.0  # bytes a second, over the same time
_SPARE = 1.5  # of a size that is known only about
_MOST = 1 << 34  # bytes of a file of which no size is known
Progress = Callable[[int, int], None]
"""Called with the bytes so far and the bytes of the whole file (0: unknown)."""


class FetchError(BlockedError):
    """Published data that could not be fetched; what is on disk is as it was."""


class UnreachableError(FetchError):
    """No address of a file gives it."""


class _BadAnswerError(Exception):
    """A server's answer that is not taken; the message is the end of a line.

    Attributes:
        keep: what came is right, and another try goes on from there.
    """

    def __init__(self, message: str, *, keep: bool = False) -> None:
        super().__init__(message)
        self.keep = keep


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
            return _from(address, target, _most(file), progress)
        except _BadAnswerError as error:
            for rest in () if error.keep else _parts(target):
                rest.unlink(missing_ok=True)
            failures.append(f"  - {address}: {error}")
        except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
            failures.append(f"  - {address}: {_reason(error)}")
    raise UnreachableError(
        "\n".join(
            [
                f"{file.name} could not be fetched:",
                *failures,
                "Run the command again: it goes on where it stopped. Or get the file by other means, and name its "
                "folder with --from: the file is then checked and unpacked.",
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


def _most(file: PublishedFile) -> int:
    """Bytes after which a download cannot be this file."""
    if file.digest and file.size:
        return file.size
    return int(_SPARE * file.size) or _MOST


def _parts(target: Path) -> tuple[Path, Path]:
    """The files beside an unfinished download: the bytes so far, and the server's mark of the file."""
    return target.with_name(f"{target.name}.part"), target.with_name(f"{target.name}.part.etag")


def _from(address: str, target: Path, most: int, progress: Progress) -> None:
    """Download from one address; goes on with the part that is there, where the server has the same file."""
    import requests

    part, mark = _parts(target)
    done = part.stat().st_size if part.is_file() and mark.is_file() else 0
    headers = {"Accept-Encoding": "identity"}
    if done:
        headers |= {"Range": f"bytes={done}-", "If-Range": mark.read_text("utf-8")}
    with requests.get(address, headers=headers, stream=True, timeout=_PATIENCE, hooks={"response": _stay}) as response:
        if done and response.status_code == requests.codes.requested_range_not_satisfiable:
            mark.unlink()
            return _from(address, target, most, progress)
        response.raise_for_status()
        done = _begin(response, done)
        whole = _size(response, done, most)
        tag = response.headers.get("ETag", "")
        mark.unlink(missing_ok=True)
        if tag and not tag.startswith("W/"):  # only a strong tag says that the bytes are the same
            mark.write_text(tag, "utf-8")
        with part.open("ab" if done else "wb") as out:
            for block in _blocks(response.raw):
                done += len(block)
                if done > most:
                    raise _BadAnswerError(f"it sends more than the {most:,} bytes of the file")
                out.write(block)
                progress(done, whole)
    if whole and done != whole:
        raise requests.exceptions.ChunkedEncodingError(f"{done} of {whole} bytes")
    mark.unlink(missing_ok=True)
    part.replace(target)


def _stay(response: requests.Response, **_: Any) -> None:
    """Refuses a redirect to what is no web address, and from an encrypted one to one that is not."""
    if not response.is_redirect:
        return
    there, scheme = response.headers["Location"], ""
    with contextlib.suppress(ValueError):
        scheme = urllib.parse.urlsplit(urllib.parse.urljoin(response.url, there)).scheme
    allowed = ("https",) if response.url.startswith("https") else ("http", "https")
    if scheme not in allowed:
        raise _BadAnswerError(f"it leads to {there!r}, and only {' and '.join(allowed)} addresses are followed")


def _begin(response: requests.Response, done: int) -> int:
    """From which byte on the answer is; ``done`` where the server goes on, as it was asked to."""
    if response.status_code != 206:
        return 0
    given = response.headers.get("Content-Range", "")
    if given and not given.startswith(f"bytes {done}-"):
        raise _BadAnswerError(f"it was asked for the bytes from {done} on and sends {given!r}")
    return done


def _size(response: requests.Response, done: int, most: int) -> int:
    """Bytes of the whole file; 0 where the server does not say."""
    given = response.headers.get("Content-Length")
    if given is None:
        return 0
    if not (given.isascii() and given.isdigit()):
        raise _BadAnswerError(f"it says Content-Length: {given!r}, which is no number of bytes")
    if (whole := done + int(given[:20])) > most:
        raise _BadAnswerError(f"it announces {whole:,} bytes, and the file has {most:,} at most")
    return whole


def _blocks(raw: Any) -> Iterator[bytes]:
    """Yields the blocks of an answer as they come; raises where it is cut off or slower than a download may be."""
    since, got = time.monotonic(), 0
    while block := raw.read1(_BLOCK, decode_content=False):
        yield block
        got += len(block)
        if (seconds := time.monotonic() - since) >= _PATIENCE:
            if got < _SLOWEST * seconds:
                raise _BadAnswerError(f"it is too slow: {got:,} bytes in {seconds:.0f} s", keep=True)
            since, got = time.monotonic(), 0
