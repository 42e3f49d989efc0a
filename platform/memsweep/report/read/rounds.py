"""The rounds of a study that went on until it was decided: ``decide/<round>.json`` in its folder.

``memsweep decide`` writes a round before it runs. A report reads what each one did, and which trials it replaced.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memsweep.errors import StoreError
from memsweep.report.read.fields import fields_of
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.form import Form, OtherSchemaError
from memsweep.sweep.store.record import from_json, of_form

FOLDER = "decide"
FORM = Form[dict[str, Any]](1)
REPAIRED_FIELDS = ("perturbation.radii", "perturbation.starts", "perturbation.ascent_steps", "training.steps")
"""Fields that a repair of ``memsweep decide`` changes: they tell no conditions apart there."""


Config = Mapping[str, Any]
Rows = Mapping[str, Config]


@dataclass(frozen=True)
class StoredRound:
    """What a report says of a round.

    Attributes:
        keys: of the conditions that it went on with.
        removed: identities of trials whose place others took.
        added: canonical configs of new ones.
    """

    keys: tuple[str, ...]
    removed: tuple[str, ...]
    added: tuple[Config, ...] = ()


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
            yield StoredRound(keys, tuple(map(str, content["removed"])), tuple(content["added"]))
        except OtherSchemaError:
            raise
        except (StoreError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
                raise
            return


def unfinished(rows: Rows, last: StoredRound, ended: Collection[str]) -> list[str]:
    """The trials that a round has added, where it also removes some, and has not ended.

    Args:
        rows: identity -> canonical config, of the plan.
        last: the last round.
        ended: identities with a result, or that failed.

    Returns:
        Their identities; none where the round replaces nothing, or nothing is left of it to run.
    """
    if not last.removed:
        return []
    added = {*map(_text, last.added)}
    new = [name for name, config in rows.items() if _text(config) in added]
    return [] if all(name in ended for name in new) else new


def shown_trials(rows: Rows, new: Collection[str], old: Rows) -> dict[str, Config]:
    """The trials that a report shows while a round replaces some: the old ones in the places of the new ones.

    Cells with a stronger search beside cells with a weaker one would tell of the search, and not of the model.

    Args:
        rows: identity -> canonical config, of the plan.
        new: identities that the round has added.
        old: the same, of what it has removed.

    Returns:
        ``rows`` with old trials in the places of new ones; as it is, where an old one has no place or shares one.
    """
    places = {_place(rows[name]): name for name in new}
    replaces = {places[place]: name for name, config in old.items() if (place := _place(config)) in places}
    if len(replaces) < len(old):
        return dict(rows)
    return {replaces.get(name, name): _moved(old, replaces.get(name), config) for name, config in rows.items()}


def _moved(old: Rows, name: str | None, new: Config) -> Config:
    """An old trial with the data folder of the new one, which may have come to another machine since."""
    if name is None:
        return new
    folder = {"folder": new["task"]["folder"]} if "folder" in new["task"] else {}
    return {**old[name], "task": {**old[name]["task"], **folder}}


def _place(config: Config) -> str:
    """What a trial keeps when a round repairs it: its condition, its sizes, its seeds."""
    left_out = (*REPAIRED_FIELDS, "task.folder")
    return _text({path: value for path, value in fields_of(config).items() if not path.startswith(left_out)})


def _text(config: Config) -> str:
    return json.dumps(config, sort_keys=True, default=str)
