"""The command that gives trained weights out."""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.errors import MemsweepError
from memsweep.studies.locations import find_study
from memsweep.sweep.store.filesystem import Location

if TYPE_CHECKING:
    from memsweep.sweep.store.results import Store

_SUFFIX = ".safetensors"


def weights(args: argparse.Namespace) -> int:
    """Writes the trained weights of one model to a file; without a file it lists the trials that keep some."""
    from memsweep.report.read.weights import weights as read

    store = find_study(args.study, Location.at(args.results))
    files = [word for word in args.words if "=" not in word and word.endswith(_SUFFIX)]
    words = [word for word in args.words if word not in files]
    if not files:
        _list(store, words)
        return 0
    if len(files) > 1:
        raise MemsweepError(f"weights go to one file, got {len(files)}: {', '.join(files)}. Run the command for each.")
    found = read(store.location, words, args.seed)
    _write(Path(files[0]), found.to_bytes())
    tensors = found.tensors
    print(f"{files[0]}: {len(tensors)} tensors, {sum(value.numel() for value in tensors.values())} weights")
    for name, value in tensors.items():
        print(f"  {name}  {list(value.shape)}  {str(value.dtype).removeprefix('torch.')}")
    print(f"trial {found.identity}, seed {found.seed}")
    return 0


def _list(store: Store, words: list[str]) -> None:
    from memsweep.report.read.weights import matching
    from memsweep.sweep.store.weights import WEIGHTS
    from memsweep.sweep.tracking.run_content import run_name, varied_fields

    records = list(matching(store, words))
    if not records:
        raise MemsweepError(
            f"{' '.join(words)!r} means none of the {len(store.identities())} trials of {store.location.name}. Leave "
            "it out to see them all."
        )
    varied = varied_fields(record["config"] for record in records)
    for record in records:
        training, size = record["config"]["training"], record["files"].get(WEIGHTS)
        kept = f"{size['bytes'] / 1024:.1f} KiB" if size and store.has_weights(record) else "no weights"
        first, count = training.get("first_seed", 0), training["seeds"]
        seeds = f"seed {first}" if count == 1 else f"seeds {first}-{first + count - 1}"
        print(f"{record['identity'][:12]}  {seeds}  {kept}  {run_name(record['config'], varied)}")
    print(f"memsweep weights {store.location.name} TRIAL --seed SEED out{_SUFFIX} writes one of them.")


def _write(path: Path, data: bytes) -> None:
    """Create a file; one that is there already stays."""
    try:
        with path.open("xb") as file:
            try:
                file.write(data)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                raise
    except FileExistsError:
        raise MemsweepError(f"{path} is there already, and stays. Give another name, or delete it.") from None
    except OSError as error:
        raise MemsweepError(f"{path} cannot be written: {error.strerror or error}. Give another place.") from error
