"""The write check before a sweep: writes a file to the results folder, reads it back and deletes it."""

from __future__ import annotations

import contextlib
import errno
import getpass
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from memsweep.errors import MemsweepError, StoreError
from memsweep.redaction import redacted, without_secrets
from memsweep.sweep.store.filesystem import S3, Location, s3_filesystem
from memsweep.sweep.store.retry import aws_error_code, is_transient

FREE_BYTES = 16 * 2**20
"""Least free bytes of the disk with which a sweep starts."""

_PROBE = bytes(range(256)) * 1024
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_UNREACHABLE = "NETWORK_CONNECTION"
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


def check_writable(results: Location) -> None:
    """Check that files can be written to the results folder; a failed check leaves no files or folders behind.

    Raises:
        StoreError: they cannot; the message says why and what to do.
    """
    if results.local is None:
        _try_bucket(results)
    else:
        _try_folder(results, results.local)


def _try_folder(results: Location, folder: Path) -> None:
    existing = _nearest(folder)
    if not existing.is_dir():
        raise StoreError(
            f"results cannot go to {folder}: {existing} is a file, not a folder. Move it away, or give another folder "
            "with --results."
        )
    free = shutil.disk_usage(existing).free
    if free < FREE_BYTES:
        raise _full(folder, f"{free / 2**20:.1f} MiB are free")
    with _remove_new_folders(folder, existing), _local_errors(folder):
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
def _local_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _local_fault(folder, error) from error


def _local_fault(folder: Path, error: OSError) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full(folder, "there is no space, or your quota is used up")
    if error.errno == errno.EROFS:
        return StoreError(
            f"results cannot be written to {folder}: its file system is read-only. Give another folder with --results."
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return StoreError(
            f"results cannot be written to {folder}: {_user()} may not write there. Change its permissions or its "
            "owner, or give another folder with --results."
        )
    return StoreError(
        f"results cannot be written to {folder}: {error.strerror or error}. Give another folder with --results."
    )


def _full(folder: Path, what: str) -> StoreError:
    return StoreError(
        f"results cannot be written to {folder}: {what}, and a sweep needs at least {FREE_BYTES // 2**20} MiB to "
        "start. Free some space there, or give another folder with --results."
    )


def _user() -> str:
    try:
        return f"user {getpass.getuser()!r}"
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _try_bucket(results: Location) -> None:
    """Tries once with short timeouts, to report a fault within seconds; tries again after a transient error."""
    try:
        _try_object(results, attempts=1)
    except StoreError as refused:
        cause = refused.__cause__
        # a service that cannot be reached at all has most likely a wrong address
        if not is_transient(cause) or aws_error_code(str(cause)) == _UNREACHABLE:
            raise
        _try_object(results, attempts=4)


def _try_object(results: Location, attempts: int) -> None:
    probe = results / f".probe.{uuid.uuid4().hex}"
    try:
        files = s3_filesystem(attempts=attempts, connect_timeout=3.0, request_timeout=3.0)
        with files.open_output_stream(probe.path("probe")) as stream:
            stream.write(_PROBE)
        with files.open_input_stream(probe.path("probe")) as stream:
            same = stream.read() == _PROBE
        files.delete_dir(probe.path())
    except (OSError, ValueError) as error:  # ValueError: pyarrow's, for an endpoint that is no address
        raise _bucket_fault(results, error) from error
    if not same:
        raise StoreError(f"{results} does not give back what was written to it. Give another location with --results.")


def _bucket_fault(results: Location, error: Exception) -> MemsweepError:
    code, detail = _parts(str(error))
    bucket = results.uri.removeprefix(S3).partition("/")[0]
    where = _endpoint()
    missing = [name for name in _KEYS if not os.environ.get(name)]
    if code == "NO_SUCH_BUCKET":
        return StoreError(
            f"there is no bucket {bucket!r} at {where}. Create it (aws s3 mb {S3}{bucket}), or give another with "
            "--results; for another service than Amazon's, AWS_ENDPOINT_URL is its address."
        )
    if code in _CREDENTIALS or (missing and re.search("HTTP status 40[013]", code)):
        seen = f"{' and '.join(missing)} not set" if missing else f"as user {os.environ[_KEYS[0]]!r}"
        return StoreError(
            f"{where} refuses to write to bucket {bucket!r} ({seen}; {detail}). Set {' and '.join(_KEYS)} to a key "
            "that may read, write, list and delete there."
        )
    if code == _UNREACHABLE:
        return StoreError(
            f"{where} does not answer ({detail}). Look whether it runs and can be reached from here; "
            "AWS_ENDPOINT_URL is its address, AWS_REGION its region."
        )
    return StoreError(
        f"results cannot be written to {results} at {where} ({detail}). Check AWS_ENDPOINT_URL, AWS_REGION and "
        "the name of the bucket."
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
