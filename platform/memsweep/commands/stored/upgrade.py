"""The command that rewrites stored results in the form of today."""

from __future__ import annotations

import argparse
import contextlib

from memsweep.documents import Answer
from memsweep.documents.keys.files import UpgradedItem
from memsweep.errors import MemsweepError, counted
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.lease import hold_lease
from memsweep.sweep.store.results import Store
from memsweep.sweep.upgrade import Upgrade, studies
from memsweep.sweep.upgrade import upgrade as rewrite_all


def upgrade(args: argparse.Namespace) -> Answer:
    """Rewrites the results of all studies of a folder; exit code 1 where some cannot be read."""
    found = studies(Location.at(args.folder))
    if not found:
        raise MemsweepError(
            f"there is no stored result in {args.folder}. Give the folder of the results, or of one study: "
            "memsweep upgrade results"
        )
    items: list[UpgradedItem] = []
    lines: list[str] = []
    for store in found:
        done = _upgraded(store, write=not args.dry_run)
        items.append(
            {
                "study": store.location.name,
                "results": done.results,
                "older": len(done.older),
                "rewritten": len(done.rewritten),
                "unreadable": done.unreadable,
            }
        )
        lines += _lines(store.location.name, done, looked=args.dry_run)
    document = {"folder": args.folder, "dry_run": args.dry_run, "studies": items}
    return Answer(document, int(any(item["unreadable"] for item in items)), text="\n".join(lines))


def _upgraded(store: Store, *, write: bool) -> Upgrade:
    with hold_lease(store.location, lambda: None) if write else contextlib.nullcontext():
        return rewrite_all(store, write=write)


def _lines(study: str, done: Upgrade, *, looked: bool) -> list[str]:
    of = f"of {counted(done.results, 'result')}"
    if not done.older:
        line = f"{study}: none {of} has an older form"
    elif looked:
        line = f"{study}: {len(done.older)} {of} in an older form; nothing was written"
    else:
        line = f"{study}: {len(done.rewritten)} {of} rewritten"
    return [line, *(f"  {name}: stays as it is: {why}" for name, why in done.unreadable.items())]
