"""Audits of public layers, and the page of them: ``python -m benchmarks.layers``.

Each layer is audited once, with as much time as it needs, and stored as a line of ``audits.jsonl`` in this folder. One
whose line was made by other code of the audit or of ours, or with other versions, is audited again. The page is made
from these lines alone.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.layers.known import HORIZON, WIDTH, Layer, layers
from benchmarks.layers.made_by import made_by
from benchmarks.layers.page import AUDITS, stored, write
from memsweep import registry
from memsweep.checks.finding import Status
from memsweep.checks.numerics.precision import worst_error
from memsweep.checks.run import Audit, audit
from memsweep.checks.subject import Subject

ENOUGH = 3600.0
"""Seconds that no audit here takes: what is looked at depends on no machine."""
_SHOWN = {
    "shapes": ("parameters",),
    "memory": ("time_scale", "horizon_limited"),
    "gradient": ("time_scale_longest",),
    "capacity": ("size",),
    "decay": ("longest", "held_steps"),
    "forms": ("step_form",),
    "padding": ("mask",),
}
"""Check -> the numbers that are stored."""


def main() -> None:
    """Audit the layers that have no stored audit, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layers", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="a package or a layer (transformers:Zamba2): audit these alone"
    )
    parser.add_argument("--store", type=Path, default=AUDITS, help="where audits are stored (default: %(default)s)")
    parser.add_argument(
        "--write", action="store_true", help="write docs/evidence/layers.md from the stored audits, and end"
    )
    parser.add_argument("--expired", action="store_true", help="list what is to be audited again, and end")
    args = parser.parse_args()
    if not args.write:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        registry.discover(Path())
        known, away = layers()
        print(*(f"not here: {words}" for words in away), sep="\n", flush=True)
        if unknown := {*args.names} - {called for layer in known for called in (layer.package, layer.name)}:
            parser.error(f"no layer or package here is called {', '.join(sorted(unknown))}; --expired lists layers")
        wanted = [layer for layer in known if not args.names or {layer.package, layer.name} & {*args.names}]
        if args.expired:
            print(*(layer.name for layer in expired(wanted, args.store)), sep="\n")
            return
        look(expired(wanted, args.store), args.store)
    write(args.store)


def look(known: Iterable[Layer], store: Path) -> None:
    """Audits layers, and stores a line of each."""
    for layer in known:
        start = time.process_time()
        subject = Subject(layer.build, WIDTH, HORIZON)
        row = _row(layer, audit(subject, ENOUGH)) | {"seconds": round(time.process_time() - start, 1)}
        with store.open("a", encoding="utf-8") as file:
            print(json.dumps(row), file=file)
        print(row["layer"], row["seconds"], row["said"], flush=True)


def expired(known: Iterable[Layer], store: Path) -> list[Layer]:
    """The layers that have no line, or one that other code or other versions made."""
    there = {row["layer"]: (row["version"], row.get("made_by")) for row in stored(store)}
    return [layer for layer in known if there.get(layer.name) != (layer.version, made_by(layer))]


def _row(layer: Layer, found: Audit) -> dict[str, Any]:
    numbers = {name: {key: found[name].numbers.get(key) for key in keys} for name, keys in _SHOWN.items()}
    precision = found["precision"].numbers
    return {
        "layer": layer.name,
        "version": layer.version,
        "made_by": made_by(layer),
        "checks": {finding.check: finding.status.value for finding in found.findings},
        "said": {
            finding.check: finding.sentence
            for finding in found.findings
            if finding.status not in (Status.PASS, Status.SKIP)
        },
        "numbers": numbers,
        "errors": {
            name: worst_error(precision[name]) for name in ("float32", "bfloat16", "float16") if precision.get(name)
        },
    }


if __name__ == "__main__":
    main()
