"""Where the files of a data set are taken from, where a user says so: a mirror, a web address, a folder, a file."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

from memsweep.errors import ConfigError
from memsweep.project.download import FetchError
from memsweep.project.packages import raw_name
from memsweep.project.published import DataSet, PublishedFile

MIRROR = "MEMSWEEP_DATA_MIRROR"
"""An address below which each data set has a folder of its name, with its files as they are published."""


def sourced(name: str, data_set: DataSet, source: str) -> DataSet:
    """The data set with the addresses that are tried.

    Args:
        name: of the data set.
        data_set: as it is published.
        source: the address of a folder, or of the data set's one file; a path of this machine; or empty.

    Raises:
        ConfigError: the mirror of the environment is no web address.
    """
    mirror = os.environ.get(MIRROR, "").rstrip("/")
    if mirror and not mirror.startswith(("http://", "https://")):
        raise ConfigError([f"{MIRROR} is {mirror!r}: give an address that begins with http:// or https://"], MIRROR)

    def addresses(file: PublishedFile) -> tuple[str, ...]:
        if "://" in source:
            return (source if source.endswith(f"/{file.name}") else f"{source.rstrip('/')}/{file.name}",)
        if source:  # of this machine: no address is asked
            return file.addresses
        return (*([f"{mirror}/{name}/{file.name}"] if mirror else []), *file.addresses)

    files = tuple(dataclasses.replace(file, addresses=addresses(file)) for file in data_set.files)
    return dataclasses.replace(data_set, files=files)


def gather(source: Path, data_set: DataSet, downloads: Path) -> dict[str, bytes]:
    """Take the files of a data set from a path: as published, to where downloads go; or not compressed, as they are.

    Args:
        source: one published file, or a folder that has them or a folder of the data set's name with them.
        data_set: whose files.
        downloads: the folder of downloads.

    Returns:
        Name -> content of the files that are not compressed; empty where the published ones are there.

    Raises:
        FetchError: a file is not there; all that lack are named.
    """
    places = [source.parent] if source.is_file() else [source, source / data_set.folder]
    there = [{path.name: path for path in place.glob("*") if path.is_file()} for place in places if place.is_dir()]
    for files in there:
        if all(file.name in files for file in data_set.files):
            for file in data_set.files:
                shutil.copyfile(files[file.name], downloads / file.name)
            return {}
        if all(file.raw and raw_name(file) in files for file in data_set.files):
            return {raw_name(file): files[raw_name(file)].read_bytes() for file in data_set.files}
    missing = [file.name for file in data_set.files if not any(file.name in files for files in there)]
    raise FetchError(
        f"{source} lacks {', '.join(missing)}. Name the folder that has all files as they are published, one such "
        "file, the file of a package, or a web address."
    )
