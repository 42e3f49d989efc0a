"""Rows of others that stay with a results folder: each is a file there, until somebody deletes it."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from memsweep.commands import console
from memsweep.commands.atlas.row_file import MOST
from memsweep.errors import ConfigError
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.layout import ATLAS_ROWS

if TYPE_CHECKING:
    from memsweep.commands.atlas.added import Atlas
    from memsweep.commands.atlas.rows import AtlasRow
    from memsweep.trust.gate import Trust


def has_rows(results: Location) -> bool:
    """Whether a results folder keeps rows of others.

    Raises:
        StorageError: it cannot be read.
    """
    with storage_errors("read", results):
        return bool((results / ATLAS_ROWS).names())


def keep_rows(results: Location, added: Mapping[bytes, AtlasRow]) -> None:
    """Writes the files of rows, content -> row, to a results folder. A file that is there gets the same content.

    Raises:
        StorageError: one cannot be written.
    """
    place = results / ATLAS_ROWS
    with storage_errors("write", place):
        for content, row in added.items():
            plain = re.sub(r"[^A-Za-z0-9_.]+", "-", row.unit).strip(".-")[:100]
            place.write(f"{plain}-{hashlib.sha256(content).hexdigest()[:8]}.json", content)
    if added:
        console.say_sentence(
            f"{place} keeps the added rows: later tables have them until you delete their files there."
        )


def kept_rows(results: Location, added: Mapping[bytes, AtlasRow], atlas: Atlas, trust: Trust) -> Iterator[AtlasRow]:
    """The rows that a results folder keeps, checked again; those that were just added are left out.

    A word for code that is given with this command is for the files that it names, not for these. A file that cannot be
    read as a row is left out, and a sentence says so: it is in nobody's way.

    Raises:
        StorageError: the folder cannot be read.
    """
    place, silent = results / ATLAS_ROWS, replace(trust, given=False, ask=None)
    with storage_errors("read", place):
        contents = {name: place.read(name, MOST) for name in sorted(place.names()) if name.endswith(".json")}
    for name, content in contents.items():
        if content in added:
            continue
        try:
            yield atlas.row(content, str(place / name), silent)
        except ConfigError as error:
            told = f"{error.problems[0]} The row is left out: add it again, or delete the file."
            console.say_sentence(told, file=sys.stderr)
