"""The rounds of a study that went on until it was decided: ``decide/<round>.json`` in its folder.

``memsweep decide`` writes a round before it runs. A report reads what each one did, and which trials it replaced.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memsweep.errors import StoreError
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.form import Form, OtherSchemaError
from memsweep.sweep.store.record import from_json, of_form

FOLDER = "decide"
FORM = Form[dict[str, Any]](1)


@dataclass(frozen=True)
class StoredRound:
    """What a report says of a round.

    Attributes:
        keys: of the conditions that it went on with.
        removed: identities of trials whose place others took.
    """

    keys: tuple[str, ...]
    removed: tuple[str, ...]


def round_name(number: int) -> str:
    """The name of a round's file in the folder of its study."""
    return f"{FOLDER}/{number:06d}.json"


def round_content(data: bytes, where: str) -> dict[str, Any]:
    """The content of a round's file.

    Raises:
        OtherSchemaError: a newer version of memsweep wrote it.
        StoreError: it is damaged.
    """
    return of_form(FORM, from_json(data, where), where)


def model_of(config: Mapping[str, Any]) -> str:
    """The model of a trial, without its width: a round of another one is of another study of the same name."""
    return json.dumps({**config["model"], "width": 0}, sort_keys=True, default=str)


def stored_rounds(place: Location, rows: Iterable[Mapping[str, Any]]) -> Sequence[StoredRound]:
    """The rounds of a study from the first, up to one that is missing, damaged, or of another study of this name.

    Args:
        place: the study's folder.
        rows: the canonical configs of its plan.

    Raises:
        StoreError: the storage cannot be read, or a newer version of memsweep wrote a round.
    """
    return [*_rounds(place, {model_of(config) for config in rows})]


def _rounds(place: Location, models: Collection[str]) -> Iterator[StoredRound]:
    with storage_errors("read", f"{place}/{FOLDER}"):
        names = [*place.names(FOLDER)]
    for number in range(len(names)):
        where = f"{place}/{round_name(number)}"
        try:
            with storage_errors("read", where):
                content = round_content(place.read(round_name(number)), where)
            if not {model_of(config) for config in content["added"]} <= {*models}:
                return
            keys = tuple(str(step["key"]) for step in content["steps"])
            yield StoredRound(keys, tuple(map(str, content["removed"])))
        except OtherSchemaError:
            raise
        except (StoreError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
                raise
            return
