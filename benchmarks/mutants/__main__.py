"""Mutants of public layers, and how many of them the audit finds: ``python -m benchmarks.mutants --seed 11``.

Thirty layers and their faults are drawn by the seed. Ten of the layers are held out: their mutants are looked at with
``--held-out`` alone. docs/evidence/layers.md says what was changed after that; ``--write`` puts the table there.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.layers.known import HORIZON, WIDTH, Layer, layers, probe
from benchmarks.layers.page import put, stored
from benchmarks.mutants.mutations import MUTATIONS, Between, equivalent
from memsweep import registry
from memsweep.checks.finding import Status
from memsweep.checks.part import checks
from memsweep.checks.subject import Subject
from memsweep.models.training_mode import seeded

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "layers.md"
MUTANTS = Path(__file__).parent / "mutants.jsonl"
START, END = "<!-- mutants: python -m benchmarks.mutants -->", "<!-- end of mutants -->"
LAYERS, HELD_OUT = 30, 10
_RANK = {Status.PASS: 0, Status.SKIP: 0, Status.NOT_ENOUGH: 0, Status.NOTE: 1, Status.FAULT: 2}


def main() -> None:
    """Make the mutants, look at them, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="LAYER", help="look at these of the drawn layers alone")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--layers", type=int, default=LAYERS, help="how many are drawn (30), the held out among them")
    parser.add_argument("--per-kind", type=int, default=1, help="mutants of each kind and layer (1)")
    parser.add_argument("--held-out", action="store_true", help="look at the layers that are held out, and at no other")
    parser.add_argument("--only", help="a kind of mutants")
    parser.add_argument(
        "--out", type=Path, default=MUTANTS, help="a line for each mutant; goes on where it ends (%(default)s)"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table of the file into docs/evidence/layers.md, and end"
    )
    args = parser.parse_args()
    if args.write:
        write(args.out, args.seed)
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    registry.discover(Path())
    known, away = layers()
    for words in away:
        print(f"not here: {words}", flush=True)
    order = np.random.default_rng(args.seed).permutation(len(known))
    chosen = order[:HELD_OUT] if args.held_out else order[HELD_OUT : args.layers]
    seen = {json.loads(line)["layer"] for line in args.out.read_text().splitlines()} if args.out.is_file() else set()
    with args.out.open("a") as file:
        for layer in (known[place] for place in chosen):
            if layer.name not in seen and (not args.names or layer.name in args.names):
                for row in _looked_at(layer, args):
                    print(json.dumps(row | {"held_out": args.held_out}), file=file, flush=True)
                    print(row["layer"], row["kind"], row["what"], row["found"], f"{row['seconds']:.1f} s", flush=True)


def _looked_at(layer: Layer, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for kind, mutation in MUTATIONS.items():
        if args.only not in (None, kind):
            continue
        for number in range(args.per_kind):
            start = time.monotonic()
            made = _made(layer, kind, args.seed, number)
            if made is None:
                yield _row(layer, kind, "", "does not apply", start)
                continue
            base, mutant, words = made
            if equivalent(kind, base, mutant):
                yield _row(layer, kind, words, "equivalent", start)
                continue

            def again(kind: str = kind, number: int = number) -> nn.Module:
                return _made(layer, kind, args.seed, number)[1]  # type: ignore[index]

            def unchanged(kind: str = kind) -> nn.Module:
                with seeded(0):
                    return MUTATIONS[kind].base(_module(layer))

            worse = [check for check in mutation.checks if _worse(check, mutation.word, again, unchanged)]
            yield _row(layer, kind, words, "found" if worse else "missed", start)


def _made(layer: Layer, kind: str, seed: int, number: int) -> tuple[nn.Module, nn.Module, str] | None:
    name = sum(map(ord, layer.name))
    rng = np.random.default_rng([seed, name, list(MUTATIONS).index(kind), number])
    with seeded(0):
        base = MUTATIONS[kind].base(_module(layer))
    with seeded(0):
        made = MUTATIONS[kind].put(_module(layer), rng)
    if made is None:
        return None
    try:
        with torch.no_grad():
            made[0](probe(base, 20))
    except Exception:  # a module that reads its weights by name has no place for two names of one
        return None
    return (base, *made)


def _module(layer: Layer) -> nn.Module:
    with seeded(0):
        return Between(layer.build())


def _subject(build: Any) -> Subject:
    return Subject(build, WIDTH, HORIZON)


def _worse(name: str, word: str, mutant: Any, base: Any) -> bool:
    """Whether a check says more of the mutant than of its module: a worse status, or words that it has of no other."""
    (check,) = [each for each in checks() if each.name == name]
    found, before = (check.look(_subject(build), 600.0) for build in (mutant, base))
    said = bool(word) and word in found.sentence and word not in before.sentence
    return _RANK[found.status] > _RANK[before.status] or (said and _RANK[found.status] > 0)


def _row(layer: Layer, kind: str, what: str, found: str, start: float) -> dict[str, Any]:
    return {
        "layer": layer.name,
        "kind": kind,
        "what": what,
        "found": found,
        "seconds": round(time.monotonic() - start, 2),
    }


def write(file: Path, seed: int, to: Path = PAGE) -> None:
    """Puts the table of the file between two marks of a page."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    lines = ["| kind | drawn | equivalent | found | held out: found | missed |", "|---|---|---|---|---|---|"]
    for kind in MUTATIONS:
        own = [row for row in rows if row["kind"] == kind and row["found"] != "does not apply"]
        real = [row for row in own if row["found"] != "equivalent"]
        parts = []
        for held in (False, True):
            some = [row for row in real if row["held_out"] is held]
            parts.append(f"{sum(row['found'] == 'found' for row in some)} of {len(some)}")
        missed = "; ".join(f"{row['layer']} ({row['what']})" for row in real if row["found"] == "missed")
        lines.append(f"| {kind} | {len(own)} | {len(own) - len(real)} | {parts[0]} | {parts[1]} | {missed or 'none'} |")
    drawn = {row["layer"] for row in rows}
    audits = [row for row in stored() if row["layer"] in drawn]
    loud = [row["layer"] for row in audits if "fault" in row["checks"].values()]
    same = [f"{row['layer']}: {row['kind']}, {row['what']}" for row in rows if row["found"] == "equivalent"]
    lines += [
        "",
        f"{len(drawn)} layers, seed {seed}. Of them, {len(audits)} were audited as they are: "
        f"{'faults in ' + ', '.join(loud) if loud else 'no fault'}. Equivalent mutants: {'; '.join(same) or 'none'}.",
    ]
    put(to, START, END, lines, file)


if __name__ == "__main__":
    main()
