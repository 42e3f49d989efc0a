"""Where files of studies lie: a folder on a local disk, or a prefix in an S3 bucket, by the same code.

A file appears whole or not at all. On a disk it is written to another name, synced and renamed. An object store
shows an object only after all of it has arrived.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from memsweep.errors import ConfigError, MemsweepError, StorageError, user
from memsweep.redaction import redacted, without_secrets
from memsweep.sweep.store.retry import aws_error_code, with_retries

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

S3 = "s3://"
_WHERE = "the location of results"
STAGING = ".partial"
_STALE_SECONDS = 3600.0
_READERS = 16
_SHOWN = 100  # characters of a path that is too long
_first_seen: dict[str, dict[str, float]] = {}  # location -> unfinished file -> monotonic seconds

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Location:
    """A folder of files; nothing is created before the first write.

    Made by ``Location.at``. Every method but ``at`` and ``/`` may raise ``OSError``; see ``storage_errors``.

    Attributes:
        uri: what ``Location.at`` takes again, in any process: an absolute path, or ``s3://bucket/prefix``.
    """

    uri: str

    @classmethod
    def at(cls, where: Location | Path | str) -> Location:
        """A location by its path or ``s3://`` URI; credentials, region and endpoint come from AWS's own variables.

        Raises:
            ConfigError: a URI of another kind, one without a bucket, or one with a password in it.
        """
        if isinstance(where, Location):
            return where
        text = str(where)
        if "://" not in text:
            return cls(str(Path(text).absolute()))
        parts = urllib.parse.urlsplit(text)
        names = text.removeprefix(S3).rstrip("/").split("/")
        if not text.startswith(S3) or parts.query or parts.fragment or {"", ".", ".."}.intersection(names):
            allowed = "allowed are a folder and s3://bucket/prefix"
            raise ConfigError(
                [
                    f"{redacted(text)!r} is no location for results; {allowed} (the endpoint of another service than "
                    "Amazon's goes into AWS_ENDPOINT_URL)."
                ],
                _WHERE,
            )
        if redacted(text) != text:
            problem = f"{redacted(text)!r} carries credentials, which would be stored with the results"
            raise ConfigError([f"{problem}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead."], _WHERE)
        return cls(text.rstrip("/"))

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.uri.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.uri

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.uri.rpartition("/")[2]

    @property
    def own_name(self) -> str:
        """A name for a folder on this machine that belongs to this place alone."""
        return f"{self.name[:60]}-{hashlib.sha256(self.uri.encode()).hexdigest()[:16]}"

    @property
    def parent(self) -> Location:
        """The folder that this one lies in."""
        return Location(self.uri.rpartition("/")[0] or "/")

    @property
    def local(self) -> Path | None:
        """The folder, where this is a local disk."""
        return None if self.uri.startswith(S3) else Path(self.uri)

    @cached_property
    def files(self) -> FileSystem:
        """pyarrow's file system of this location."""
        from pyarrow import fs

        return fs.LocalFileSystem() if self.local is not None else s3_filesystem()

    @cached_property
    def _short_timeout_files(self) -> FileSystem:
        """The same with short timeouts, for writes that must not delay training: an error comes within seconds."""
        return s3_filesystem(attempts=2, connect_timeout=3.0, request_timeout=10.0)

    def path(self, name: str = "") -> str:
        """The path of a file as ``files`` takes it."""
        root = self.uri.removeprefix(S3)
        return f"{root}/{name}" if name else root

    def read(self, name: str, most: int | None = None) -> bytes:
        """The whole file, or its first ``most`` bytes.

        Raises:
            FileNotFoundError: there is none.
        """
        try:
            return with_retries(lambda: self._get(self.path(name), most))
        except FileNotFoundError:
            raise
        except OSError:
            if self.local is None and not self.exists(name):  # deleted while it was being read
                raise FileNotFoundError(self.path(name)) from None
            raise

    def write(self, name: str, data: bytes, *, wait: bool = True) -> None:
        """Write or replace a file; with ``wait``, transient errors are retried (see ``retry``)."""
        if wait or self.local is not None:
            self.write_all({name: data})
        else:
            with self._short_timeout_files.open_output_stream(self.path(name)) as stream:
                stream.write(data)

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Write files in order; the last one is the commit point of all."""
        if self.local is None:
            for name, data in files.items():
                with_retries(partial(self._put, self.path(name), data))
            return
        with contextlib.ExitStack() as cleanup:
            staged = {name: self._stage(name, data, cleanup) for name, data in files.items()}
            for name, temporary in staged.items():
                self._make_folder(self.path(name))
                self.files.move(temporary, self.path(name))
                self._sync(os.path.dirname(self.path(name)))

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return bool(with_retries(lambda: self.files.get_file_info(self.path(name))).is_file)

    def names(self, folder: str = "") -> dict[str, int]:
        """The files in a folder, without those below: name -> size in bytes; empty where there is no such folder."""
        return {info.base_name: int(info.size) for info in self._entries(folder) if info.is_file}

    def folders(self) -> list[str]:
        """The names of the folders in this one, sorted."""
        from pyarrow.fs import FileType

        return sorted(info.base_name for info in self._entries("") if info.type == FileType.Directory)

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            with_retries(lambda: self.files.delete_file(self.path(name)))

    def move(self, name: str, to: str) -> None:
        """Give a file another name in this location.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if not self.exists(name):  # a bucket raises another error
            raise FileNotFoundError(self.path(name))
        self._make_folder(self.path(to))
        with_retries(lambda: self.files.move(self.path(name), self.path(to)))

    def delete_all(self) -> None:
        """Delete this folder with everything in it, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            with_retries(lambda: self.files.delete_dir(self.path()))

    def slot(self, name: str) -> FileSlot:
        """One file as a checkpoint's slot."""
        return FileSlot(self, name)

    def clean(self) -> None:
        """Remove the unfinished files that killed writers left.

        A file goes after this process has seen it for an hour; until then a writer may still use it.
        Modification times are not read, because the storage's clock may be wrong.
        """
        if self.local is None:
            return
        now, seen = time.monotonic(), _first_seen.get(self.uri, {})
        _first_seen[self.uri] = {name: seen.get(name, now) for name in self.names(STAGING)}
        for name, since in _first_seen[self.uri].items():
            if now - since >= _STALE_SECONDS:
                self.delete(f"{STAGING}/{name}")

    def _entries(self, folder: str) -> list[Any]:
        from pyarrow.fs import FileSelector

        try:
            return with_retries(lambda: self.files.get_file_info(FileSelector(self.path(folder), allow_not_found=True)))
        except NotADirectoryError:
            return []
        except FileNotFoundError:  # Arrow raises it for a folder that is created meanwhile
            return []

    def _make_folder(self, path: str) -> None:
        """Create the folder of a file; a bucket has no folders, and would get an object of that name."""
        if self.local is not None:
            self.files.create_dir(os.path.dirname(path))

    def _get(self, path: str, most: int | None) -> bytes:
        with self.files.open_input_stream(path) as stream:
            data: bytes = stream.read(most)
        return data

    def _put(self, path: str, data: bytes) -> None:
        with self.files.open_output_stream(path) as stream:
            stream.write(data)

    def _stage(self, name: str, data: bytes, cleanup: contextlib.ExitStack) -> str:
        """Write a file completely to the disk under a temporary name, and return its path."""
        # Unique per writer: two processes may write the same file at the same time.
        temporary = self.path(f"{STAGING}/{os.path.basename(name)[:100]}.{os.getpid()}.{uuid.uuid4().hex}")
        self._make_folder(temporary)
        cleanup.callback(lambda: Path(temporary).unlink(missing_ok=True))
        self._put(temporary, data)
        self._sync(temporary)
        return temporary

    def _sync(self, path: str) -> None:
        """Sync a file, or the names in a folder, so that they survive a power cut."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError) if os.path.isdir(path) else contextlib.nullcontext():
                os.fsync(descriptor)  # some network file systems cannot sync a folder
        finally:
            os.close(descriptor)


def s3_filesystem(*, attempts: int = 5, connect_timeout: float = 5.0, request_timeout: float = 30.0) -> FileSystem:
    """pyarrow's S3 file system, set by the variables that every AWS client reads.

    Args:
        attempts: attempts of each request.
        connect_timeout: seconds.
        request_timeout: seconds without a byte of an answer.
    """
    from pyarrow import fs

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
    scheme, _, host = endpoint.rstrip("/").rpartition("://") if endpoint else ("https", "", "")
    return fs.S3FileSystem(
        endpoint_override=host or None,
        scheme=scheme or "https",
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        connect_timeout=connect_timeout,
        request_timeout=request_timeout,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=attempts),
        allow_delayed_open=True,  # a small object is one request, and fails as one
        # in the foreground, a large object whose upload fails would be completed from the parts that arrived
        background_writes=True,
    )


def at_once(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Apply ``work`` to all items in threads, because requests to a bucket are slow; results are in order."""
    todo = list(items)
    if len(todo) < 2:
        return [work(item) for item in todo]
    with ThreadPoolExecutor(_READERS) as threads:
        return list(threads.map(work, todo))


@dataclass(frozen=True)
class FileSlot:
    """One file of a location, as a checkpoint's slot (``memsweep.learning.state.checkpoint``)."""

    location: Location
    name: str

    def read(self, most: int | None = None) -> bytes | None:
        """The whole file, or the first ``most + 1`` bytes of a longer one; None where there is none."""
        try:
            return self.location.read(self.name, None if most is None else most + 1)
        except FileNotFoundError:
            return None

    def write(self, data: bytes) -> None:
        """Write the file, whole or not at all, without retries, so that training is not delayed."""
        self.location.write(self.name, data, wait=False)

    def delete(self) -> None:
        """Delete the file, if it exists."""
        self.location.delete(self.name)

    def __str__(self) -> str:
        return f"{self.location}/{self.name}"


@contextlib.contextmanager
def storage_errors(verb: str, where: object) -> Iterator[None]:
    """Turns errors of the storage into ``StorageError`` with advice.

    Raises:
        StorageError: for an OSError of the body, or pyarrow's ValueError about an address.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        if not isinstance(error, OSError) and not type(error).__module__.startswith("pyarrow"):
            raise  # a fault of the code, not of the storage
        if getattr(error, "errno", None) == errno.ENAMETOOLONG:
            told = f"cannot {verb} {str(where)[:_SHOWN]}...: the path is too long. Give a shorter one."
            raise MemsweepError(told) from error
        if str(where).startswith(S3) and (aws_error_code(str(error)) or isinstance(error, ValueError)):
            raise bucket_fault(verb, str(where), error) from error
        if isinstance(error, PermissionError):
            told = f"cannot {verb} {where}: {user()} may not {verb} there"
            raise StorageError(
                told, "Change its permissions or its owner, then run the same command again: finished results are kept."
            ) from error
        if out := out_of_files(error, str(where)):
            raise StorageError(
                f"cannot {verb} {where}: {out}",
                f"{DELETE_FILES}, then run the same command again: finished results are kept.",
            ) from error
        cause = without_secrets(" ".join(str(getattr(error, "strerror", None) or error).split())).rstrip(".")
        raise StorageError(
            f"cannot {verb} {where}: {cause}",
            "Check the free space and the permissions there, then run the same command again: finished results are "
            "kept.",
        ) from error


DELETE_FILES = "Delete files there"
_FREE_BYTES, _FEW_FILES = 16 * 2**20, 64


def out_of_files(error: Exception, path: str) -> str:
    """Why a disk with free space takes no more files, in words; empty where another thing is wrong.

    Args:
        error: of writing.
        path: what was written; it may be missing.
    """
    if getattr(error, "errno", None) != errno.ENOSPC:
        return ""
    with contextlib.suppress(OSError):
        folder = Path(path).absolute()
        disk = os.statvfs(next(place for place in (folder, *folder.parents) if place.exists()))
        # a few are free again once what was begun is removed; some file systems count no files: f_files is 0
        if disk.f_files and disk.f_favail < _FEW_FILES and disk.f_bavail * disk.f_frsize >= _FREE_BYTES:
            return f"its file system has free space, but takes no more files (free inodes: {disk.f_favail})"
    return ""


_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
UNREACHABLE = "NETWORK_CONNECTION"
"""AWS's word for a service that does not answer."""
_DETAIL = re.compile(r"operation: (.*?)(?: \(Request ID.*)?$", re.DOTALL)

_CREDENTIALS = {
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "INVALID_CLIENT_TOKEN_ID",
    "INVALID_SIGNATURE",
    "MISSING_AUTHENTICATION_TOKEN",
    "SIGNATURE_DOES_NOT_MATCH",
    "UNRECOGNIZED_CLIENT",
}


def bucket_fault(verb: str, where: str, error: Exception) -> StorageError:
    """Says what is wrong with a bucket, and what to do.

    Args:
        verb: what was not possible, as ``write to``.
        where: an ``s3://`` URI.
        error: of the client.
    """
    code, detail = _parts(str(error))
    bucket, service = where.removeprefix(S3).partition("/")[0], _endpoint()
    missing = [name for name in _KEYS if not os.environ.get(name)]
    if code == "NO_SUCH_BUCKET":
        return StorageError(
            f"there is no bucket {bucket!r} at {service}",
            f"Create it (aws s3 mb {S3}{bucket}), or give another with --results; for another service than Amazon's, "
            "AWS_ENDPOINT_URL is its address.",
        )
    if code in _CREDENTIALS or (missing and re.search("HTTP status 40[013]", code)):
        seen = f"{' and '.join(missing)} not set" if missing else f"as user {os.environ[_KEYS[0]]!r}"
        return StorageError(
            f"{service} refuses to {verb} bucket {bucket!r} ({seen}; {detail})",
            f"Set {' and '.join(_KEYS)} to a key that may read, write, list and delete there.",
        )
    if code == UNREACHABLE:
        return StorageError(
            f"{service} does not answer ({detail})",
            "Look whether it runs and can be reached from here; AWS_ENDPOINT_URL is its address, AWS_REGION its "
            "region.",
        )
    return StorageError(
        f"cannot {verb} {where} at {service} ({detail})",
        "Check AWS_ENDPOINT_URL, AWS_REGION and the name of the bucket.",
    )


def _parts(message: str) -> tuple[str, str]:
    """The AWS error code, and the detail that the service gives, in one line."""
    name, match = aws_error_code(message), _DETAIL.search(message)
    detail = " ".join((match.group(1) if match else message).split()).rstrip(".")
    detail = detail.rpartition(" Message: ")[2]
    if detail in ("", "No response body"):
        detail = f"it answers {name.replace('UNKNOWN ', '').strip('()')}"
    return name, without_secrets(detail)[:200]


def _endpoint() -> str:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return f"the S3 service {redacted(endpoint)}" if endpoint else "Amazon S3"
