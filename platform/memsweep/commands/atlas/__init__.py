"""``memsweep atlas``: a layer of a user by the protocol of the study ``atlas_small``, beside its twelve stored rows."""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import builtin, registry
from memsweep.commands import console, verbs
from memsweep.commands.answers.run import run_document
from memsweep.commands.atlas.kept import has_rows, keep_rows, kept_rows
from memsweep.commands.atlas.rows import AtlasRow, atlas_text, own_row, stored_rows
from memsweep.commands.outputs import check_file
from memsweep.config.load.hydra import read
from memsweep.config.load.study import study_of
from memsweep.documents import Answer
from memsweep.errors import ConfigError
from memsweep.studies.continuation import trials_of
from memsweep.studies.trials import Request
from memsweep.sweep.store.filesystem import Location

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig
    from memsweep.documents.keys.runs import RunDocument
    from memsweep.studies.ending import Ending

PROTOCOL = "atlas_small"
"""The study whose tasks, budget, rates and seeds a layer gets."""
_FILE = f"tasks/{PROTOCOL}.yaml"
_ANY = "lstm"
"""A unit that comes with memsweep: what is asked of it is the settings of all."""
_SOURCE = "the command line"
_NO_LAYER = "there is no LAYER: name one of yours, such as my_nets:MyMixer, or rows of others with --add FILE"
_NO_RUN: RunDocument = {
    "study": PROTOCOL,
    "trials": 0,
    "reused": 0,
    "finished": {},
    "diverged": 0,
    "failed": [],
    "left": 0,
    "stopped": None,
    "seconds": 0.0,
    "inline": True,
    "time": {"seconds": 0.0, "slots": 0, "phases": {}},
    "report": None,
    "tracking": None,
    "tracking_lacks": None,
    "measured": [],
}
"""The keys of a run, where rows were shown and nothing ran."""
_USUAL = (110, 24)
"""Columns and lines where there is no terminal."""


def atlas(args: argparse.Namespace) -> Answer:
    """Trains a layer on the tasks of the atlas, and shows its row and those of others among the stored ones."""
    layer, *overrides = [*filter(None, [args.layer]), *args.overrides] or [""]
    _check(layer, overrides, args)
    stored = stored_rows()
    columns, ending, exported = [*stored[0].cells], None, False
    rows = _of_others(args, columns)
    if not layer and not rows:
        raise ConfigError([_NO_LAYER], _SOURCE)
    if layer:
        study = atlas_study(layer, overrides, Path(args.workspace))
        request = Request(study, trials_of(study), no_reuse=args.no_reuse, overrides=tuple(overrides))
        ending = verbs.execute(request, args, Location.at(args.results))
        own = own_row(layer, () if ending.report is None else ending.report.contents.losses, columns, overrides)
        rows.insert(0, own)
        exported = bool(args.export) and _export(Path(args.export), own, ending)
    document = {
        **(run_document(ending) if ending else _NO_RUN),
        "atlas": [item for row in (*rows, *stored) for item in row.items()],
        "changed": overrides,
        "exported": args.export if exported else None,
    }
    text = atlas_text(rows, stored, shutil.get_terminal_size(_USUAL).columns)
    return Answer(document, ending.code if ending else 0, text)


def _check(layer: str, overrides: Sequence[str], args: argparse.Namespace) -> None:
    """Refuses a command line that could not be obeyed, with all that is wrong."""
    problems = []
    if not layer and args.export:
        problems.append("--export writes the row of a layer: name it, such as my_nets:MyMixer")
    if layer and ("=" in layer or layer.startswith("~")):
        problems.append(
            f"there is no LAYER: {layer} changes a setting. Name a layer of yours before it, as my_nets:MyMixer"
        )
    if problems:
        raise ConfigError(problems, _SOURCE)
    if args.export:
        check_file(Path(args.export), "--export FILE")


def _of_others(args: argparse.Namespace, columns: Sequence[str]) -> list[AtlasRow]:
    """The rows of ``--add``, then those of the results folder, which keeps the rows of ``--add`` from now on."""
    results, trust, files = Location.at(args.results), console.trust_of(args), [Path(file) for file in args.add or ()]
    if not files and not has_rows(results):
        return []
    from memsweep.commands.atlas.added import Atlas

    workspace = Path(args.workspace)
    registry.discover(workspace)
    written = protocol_of(_ANY)
    one = {**written, "model": {**written["model"], "unit": _ANY}}
    atlas = Atlas(columns, study_of(one, (), workspace, f"The protocol of {PROTOCOL}."))
    added = atlas.added(files, trust)
    kept = [*kept_rows(results, added, atlas, trust)]
    keep_rows(results, added)
    return [*added.values(), *kept]


def _export(path: Path, own: AtlasRow, ending: Ending) -> bool:
    """Whether the row was written: one without results is not."""
    from memsweep.commands.atlas.row_file import write_row

    if ending.report is None or not own.seeds:
        console.say_sentence(f"{path} was not written: no task has a result on fresh seeds yet.", file=sys.stderr)
        return False
    write_row(path, own, ending.report.contents, PROTOCOL)
    console.say_sentence(
        f"The row of {own.unit} was written to {path}: memsweep atlas --add {path} shows it elsewhere."
    )
    return True


def atlas_study(layer: str, overrides: Sequence[str], workspace: Path) -> SweepConfig:
    """The study of the atlas with one model: residual layers of a user's unit.

    Raises:
        ConfigError: the layer or an override is wrong.
    """
    described = f"The layer {layer} by the protocol of {PROTOCOL}."
    return study_of(protocol_of(layer), overrides, workspace, described)


def protocol_of(layer: str) -> dict[str, Any]:
    """The text of such a study's file, as plain data: that of the atlas with one model, and without its claims."""
    written: dict[str, Any] = read(builtin.folder(builtin.STUDIES) / _FILE, ())
    grid = {axis: values for axis, values in written["grid"].items() if axis != "model"}
    model = {**written["model"], "unit": {"name": "module", "factory": layer}}
    rest = {key: value for key, value in written.items() if key != "claims"}
    return {**rest, "name": _name(layer), "grid": grid, "model": model}


def _name(layer: str) -> str:
    """The study's name, one for each layer: a hash stands behind the name of a file, where other letters go as well."""
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", layer)
    simple = re.fullmatch(r"[A-Za-z0-9_.]+:[A-Za-z0-9_.]+", layer) is not None
    return f"atlas-{plain}" if simple else f"atlas-{plain}-{hashlib.sha256(layer.encode()).hexdigest()[:8]}"
