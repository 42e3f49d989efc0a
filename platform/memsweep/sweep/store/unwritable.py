"""A storage that takes nothing: found before a sweep, and passed over while it runs."""

from __future__ import annotations

import base64
import contextlib
import errno
import math
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memsweep.errors import StorageError, StoreError, user
from memsweep.home import state_folder
from memsweep.sweep.store.filesystem import (
    DELETE_FILES,
    UNREACHABLE,
    FileSlot,
    Location,
    bucket_fault,
    out_of_files,
    s3_filesystem,
)
from memsweep.sweep.store.retry import aws_error_code, is_transient

FREE_BYTES = 16 * 2**20
"""Least free bytes of the disk with which a sweep starts."""

_ELSEWHERE = "or give another folder with --results"
_PROBE = bytes(range(256)) * 1024


def check_writable(results: Location, free: int = FREE_BYTES) -> None:
    """Check that files can be written to the results folder; a failed check leaves no files or folders behind.

    Args:
        results: the folder.
        free: bytes that must be free, where this is a disk.

    Raises:
        StorageError: they cannot; the message says why and what to do.
        StoreError: it does not give back what was written to it.
    """
    if results.local is None:
        _try_bucket(results)
    else:
        _try_folder(results, results.local, free)


def _try_folder(results: Location, folder: Path, needed: int) -> None:
    existing = _nearest(folder)
    if not existing.is_dir():
        raise StorageError(
            f"results cannot go to {folder}: {existing} is a file, not a folder",
            f"Move it away, {_ELSEWHERE}.",
        )
    with _local_errors(folder, needed):
        free = shutil.disk_usage(existing).free
    if free < needed:
        raise _full(folder, f"{free / 2**20:.1f} MiB are free", needed)
    with _remove_new_folders(folder, existing), _local_errors(folder, needed):
        probe = results / f".probe.{uuid.uuid4().hex}"
        try:
            probe.write("probe", _PROBE)
            same = probe.read("probe") == _PROBE
        finally:
            with contextlib.suppress(OSError):
                probe.delete_all()
        if not same:
            raise StoreError(f"{folder} does not give back what was written to it. Give another folder with --results.")


def _nearest(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    for path in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            if path.exists():
                return path
    return Path("/")


@contextlib.contextmanager
def _remove_new_folders(folder: Path, existing: Path) -> Iterator[None]:
    """When the body fails, removes the folders that it created, if they are empty."""
    made = [path for path in (folder, *folder.parents) if path != existing and existing in path.parents]
    try:
        yield
    except BaseException:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


@contextlib.contextmanager
def _local_errors(folder: Path, needed: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _local_fault(folder, error, needed) from error


def _local_fault(folder: Path, error: OSError, needed: int) -> StorageError:
    what = f"results cannot be written to {folder}"
    if out := out_of_files(error, str(folder)):
        return StorageError(f"{what}: {out}", f"{DELETE_FILES}, {_ELSEWHERE}.")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full(folder, "there is no space, or your quota is used up", needed)
    if error.errno == errno.EROFS:
        return StorageError(f"{what}: its file system is read-only", "Give another folder with --results.")
    if error.errno in (errno.EACCES, errno.EPERM):
        return StorageError(
            f"{what}: {user()} may not write there", f"Change its permissions or its owner, {_ELSEWHERE}."
        )
    return StorageError(f"{what}: {error.strerror or error}", "Give another folder with --results.")


def _full(folder: Path, what: str, needed: int) -> StorageError:
    return StorageError(
        f"results cannot be written to {folder}: {what}, and at least {-(-needed // 2**20)} MiB are needed",
        f"Free some space there, {_ELSEWHERE}.",
    )


def _try_bucket(results: Location) -> None:
    """Tries once with short timeouts, to report a fault within seconds; tries again after a transient error."""
    try:
        _try_object(results, attempts=1)
    except StoreError as refused:
        cause = refused.__cause__
        # a service that cannot be reached at all has most likely a wrong address
        if not is_transient(cause) or aws_error_code(str(cause)) == UNREACHABLE:
            raise
        _try_object(results, attempts=4)


def _try_object(results: Location, attempts: int) -> None:
    probe = results / f".probe.{uuid.uuid4().hex}"
    try:
        files = s3_filesystem(attempts=attempts, connect_timeout=3.0, request_timeout=3.0)
        with files.open_output_stream(probe.path("probe")) as stream:
            stream.write(_PROBE)
        try:
            with files.open_input_stream(probe.path("probe")) as stream:
                same = stream.read() == _PROBE
        except OSError:  # a key that may write and not read leaves nothing behind, if it may delete
            with contextlib.suppress(OSError):
                files.delete_dir(probe.path())
            raise
        files.delete_dir(probe.path())
    except (OSError, ValueError) as error:  # ValueError: pyarrow's, for an endpoint that is no address
        raise bucket_fault("write to", results.uri, error) from error
    if not same:
        raise StoreError(f"{results} does not give back what was written to it. Give another location with --results.")


_BACK_OFF = 10.0
"""After a failed write, the storage is passed over for this many times the seconds that the write took."""


def fallback_root() -> Location:
    """The folder of all that storages do not take."""
    return Location.at(state_folder())


def fallback_folder(location: Location) -> Location:
    """The folder of a study for what its storage does not take.

    Args:
        location: the study's folder.
    """
    return fallback_root() / location.own_name


@dataclass(frozen=True)
class UnstoredResult:
    """A result that the storage did not take.

    Attributes:
        outcome: of the trial.
        files: as ``Store.encode`` gives them.
    """

    outcome: str
    files: Mapping[str, bytes]

    def to_json(self) -> dict[str, Any]:
        """Plain data, for a report."""
        files = {path: base64.b64encode(content).decode() for path, content in self.files.items()}
        return {"outcome": self.outcome, "files": files}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> UnstoredResult:
        """The result that ``to_json`` was called on."""
        return cls(data["outcome"], {path: base64.b64decode(text) for path, text in data["files"].items()})


@dataclass
class FallbackSlot:
    """A checkpoint's slot in the study's storage, and one on this machine while the storage does not take it.

    The second one, where it is there, is the later one: it goes with the next write that the storage takes.
    """

    slot: FileSlot
    elsewhere: FileSlot
    _next_try: float = field(default=-math.inf, init=False)

    def __str__(self) -> str:
        return str(self.slot)

    def read(self, most: int | None = None) -> bytes | None:
        """See ``FileSlot.read``."""
        with contextlib.suppress(OSError):
            if (data := self.elsewhere.read(most)) is not None:
                return data
        return self.slot.read(most)

    def write(self, data: bytes) -> None:
        """Write the file, whole or not at all.

        Raises:
            OSError: neither place takes it.
        """
        began = time.monotonic()
        if began >= self._next_try:
            try:
                self.slot.write(data)
            except OSError:
                ended = time.monotonic()
                self._next_try = ended + _BACK_OFF * (ended - began)
            else:
                with contextlib.suppress(OSError):
                    self.elsewhere.delete()
                return
        self.elsewhere.write(data)

    def delete(self) -> None:
        """Delete the file in both places, if it exists."""
        with contextlib.suppress(OSError):
            self.elsewhere.delete()
        self.slot.delete()
