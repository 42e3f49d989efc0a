"""The command that gives trained weights out."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.commands.outputs import check_file, write_file
from memsweep.documents import Answer
from memsweep.documents.keys.files import StoredWeightsItem, WrittenItem
from memsweep.errors import MemsweepError
from memsweep.studies.locations import find_study
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import study_of
from memsweep.sweep.store.typed import typed

if TYPE_CHECKING:
    from memsweep.sweep.store.results import Store

_SUFFIX = ".safetensors"
_BEGINNING = re.compile("[0-9a-f]+")
"""Of an identity."""


def weights(args: argparse.Namespace) -> Answer:
    """Writes the trained weights of one model to a file; without a file it lists the trials that keep some."""
    from memsweep.report.read.weights import weights as read

    store = find_study(args.study, Location.at(args.results))
    files = [word for word in args.words if "=" not in word and word.endswith(_SUFFIX)]
    words = [word for word in args.words if word not in files]
    if strange := [word for word in words if "=" not in word and not _BEGINNING.fullmatch(word)]:
        raise MemsweepError(
            f"{strange[0]!r} is neither a field with its value (model.width=8) nor the beginning of an identity "
            f"(1a2b3c). The name of a file to be written ends in {_SUFFIX}."
        )
    if not files:
        return _list(store, words)
    if len(files) > 1:
        raise MemsweepError(f"weights go to one file, got {len(files)}: {', '.join(files)}. Run the command for each.")
    check_file(Path(files[0]), f"another name that ends in {_SUFFIX}")
    found = read(store.location, words, args.seed)
    _write(Path(files[0]), found.to_bytes())
    written: WrittenItem = {
        "file": files[0],
        "identity": found.identity,
        "seed": found.seed,
        "weights": sum(value.numel() for value in found.tensors.values()),
        "tensors": [
            {"name": name, "shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
            for name, value in found.tensors.items()
        ],
    }
    lines = [f"{files[0]}: {len(written['tensors'])} tensors, {written['weights']} weights"]
    lines += [f"  {each['name']}  {each['shape']}  {each['dtype']}" for each in written["tensors"]]
    lines.append(f"trial {found.identity}, seed {found.seed}")
    return Answer({"study": study_of(store.location.name), "trials": [], "written": written}, text="\n".join(lines))


def _list(store: Store, words: list[str]) -> Answer:
    from memsweep.report.read.weights import matching, near_field
    from memsweep.sweep.store.layout import WEIGHTS
    from memsweep.sweep.tracking.run_content import run_name, varied_fields

    records = list(matching(store, words))
    if not records:
        raise MemsweepError(
            f"{' '.join(words)!r} means none of the {len(store.identities())} trials of {store.location.name}."
            f"{near_field(store, words)} Leave it out to see them all."
        )
    varied = varied_fields(record["config"] for record in records)
    trials: list[StoredWeightsItem] = []
    for record in records:
        training, size = record["config"]["training"], record["files"].get(WEIGHTS)
        trials.append(
            {
                "identity": record["identity"],
                "name": run_name(record["config"], varied),
                "first_seed": training.get("first_seed", 0),
                "seeds": training["seeds"],
                "bytes": int(size["bytes"]) if size and store.has_weights(record) else None,
            }
        )
    study, first = study_of(store.location.name), trials[0]["identity"][:12]
    seed = str(trials[0]["first_seed"])
    command = typed("weights", study, store.location.parent, first, "--seed", seed, f"out{_SUFFIX}")
    more = f"{command} writes the first of them."
    return Answer(
        {"study": study, "trials": trials, "written": None},
        text="\n".join([*map(_line, trials), more]),
    )


def _line(trial: StoredWeightsItem) -> str:
    first, count, size = trial["first_seed"], trial["seeds"], trial["bytes"]
    seeds = f"seed {first}" if count == 1 else f"seeds {first}-{first + count - 1}"
    kept = "no weights" if size is None else f"{size / 1024:.1f} KiB"
    return f"{trial['identity'][:12]}  {seeds}  {kept}  {trial['name']}"


def _write(path: Path, data: bytes) -> None:
    """Create a file; another one that is there already stays."""
    try:
        write_file(path, data, new=True)
    except FileExistsError:
        if path.read_bytes() != data:  # else an earlier command, which was stopped, has written it
            raise MemsweepError(f"{path} is there already, and stays. Give another name, or delete it.") from None
