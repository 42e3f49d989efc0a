"""``memsweep atlas``: a layer of a user by the protocol of the study ``atlas_small``, beside its twelve stored rows."""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import builtin
from memsweep.commands import verbs
from memsweep.commands.answers.run import run_document
from memsweep.commands.atlas.rows import atlas_text, own_row, stored_rows
from memsweep.config.load.hydra import read
from memsweep.config.load.study import study_of
from memsweep.documents import Answer
from memsweep.studies.continuation import trials_of
from memsweep.studies.trials import Request
from memsweep.sweep.store.filesystem import Location

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig

PROTOCOL = "atlas_small"
"""The study whose tasks, budget, rates and seeds a layer gets."""
_FILE = f"tasks/{PROTOCOL}.yaml"
_USUAL = (110, 24)
"""Columns and lines where there is no terminal."""


def atlas(args: argparse.Namespace) -> Answer:
    """Trains a layer on the tasks of the atlas, and shows its row among the stored ones."""
    study = atlas_study(args.layer, args.overrides, Path(args.workspace))
    request = Request(study, trials_of(study), no_reuse=args.no_reuse, overrides=tuple(args.overrides), source=PROTOCOL)
    ending = verbs.execute(request, args, Location.at(args.results))
    stored = stored_rows()
    found = () if ending.report is None else ending.report.contents.losses
    own = own_row(args.layer, found, [*stored[0].cells])
    document = {**run_document(ending), "atlas": [item for row in (own, *stored) for item in row.items()]}
    document["changed"] = list(args.overrides)
    return Answer(
        document, ending.code, atlas_text(own, stored, args.overrides, shutil.get_terminal_size(_USUAL).columns)
    )


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
