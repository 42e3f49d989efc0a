"""The command of all benchmarks, from the root of the checkout: ``python -m benchmarks [NAME ...]``, or ``make bench``.

A benchmark is a module in a room of this folder with a function ``run(options: Options) -> None``: it measures, prints
a table and writes ``<out>/<name>.json`` through ``benchmarks.harness``. At the end all files there become one table.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import ModuleType

from benchmarks import harness, summary

NAMES = {
    "waiting": "studies",
    "peak": "steps",
    "step": "steps",
    "peers": "steps",
    "peers_jax": "steps",
    "peers_units": "steps",
    "units": "steps",
    "matrix_states": "steps",
    "matrix_step": "steps",
    "rules": "rules",
    "perturbation": "perturbation",
    "horizon": "steps",
    "study": "studies",
    "plain_module": "steps",
}
"""Name -> the folder of its module."""
LONG = {
    "durability": "studies",
    "budget": "perturbation",
    "sizes": "studies",
    "scale": "scale",
    "search": "studies",
    "worst_push": "perturbation",
    "test_sets": "perturbation",
}
"""Those that take long, or need servers: run when they are named."""


def module_of(name: str) -> ModuleType:
    """The module of a benchmark."""
    return importlib.import_module(f"benchmarks.{(NAMES | LONG)[name]}.{name}")


def main() -> None:
    """Run the benchmarks that were named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="How fast it is, and compared with what.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which: {', '.join(NAMES)} (default: all of these), {', '.join(LONG)}"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds: shows that it runs, no more")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="FIELD=VALUE",
        help="only rows in which these fields have these values (step: model, activation, width, dtype); not written",
    )
    parser.add_argument("--out", type=Path, default=harness.OUT, help="folder of the JSON files (default: %(default)s)")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in NAMES | LONG]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(NAMES | LONG)}")
    if odd := [text for text in given.only if "=" not in text]:
        parser.error(f"--only takes FIELD=VALUE, got {', '.join(odd)}")
    options = harness.Options(given.quick, dict(text.split("=", 1) for text in given.only), given.out)
    for name in given.names or NAMES:
        print(f"\n== {name} ==", flush=True)
        module_of(name).run(options)
    summary.write(given.out)


if __name__ == "__main__":
    main()
