"""The study that a verb is about, in its results folder."""

from __future__ import annotations

import os

from memsweep.errors import ConfigError, MemsweepError, StoreError, did_you_mean
from memsweep.sweep.planning.plan_file import FILES, StoredPlan, read_plan
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.results import Store, folder_name


def store_of(results: Location, study: str) -> Store:
    """The results of a study; a name that no folder can have is a mistake of the study."""
    try:
        return Store(results / folder_name(study))
    except StoreError as error:
        raise ConfigError([str(error)], "the study") from error


def find_study(study: str, results: Location) -> Store:
    """The results of a study by its name, or by the folder or URI of its results.

    Raises:
        MemsweepError: there are none.
    """
    candidates = [Location.at(study)] if "/" in study or os.path.isdir(study) else []
    with storage_errors("read", results):
        candidates.append(results / folder_name(study))
        for place in candidates:
            if place.names("records") or any(place.exists(name) for name in FILES):
                return Store(place)
        known = [name for name in results.folders() if any((results / name).exists(file) for file in FILES)]
    there = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "") if known else "none yet"
    raise MemsweepError(
        f"there are no results of a study {study[:100]!r} in {results}.{did_you_mean(study, known)} "
        f"Studies there: {there}. Run memsweep sweep first, or give another folder with --results."
    )


def stored_plan(store: Store) -> StoredPlan:
    """The plan of a study that has been run.

    Raises:
        MemsweepError: there is none, or it is damaged.
    """
    plan = read_plan(store.location)
    if plan is None:
        raise MemsweepError(
            f"{store.location} holds results but no plan: run its study file once more (memsweep sweep STUDY), which "
            "writes the plan anew and reuses the results."
        )
    return plan
