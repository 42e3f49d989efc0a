"""The command for a machine with a GPU: ``python -m benchmarks.card --out card.json``, from a clone, without a network.

It needs torch, triton and numpy; what needs more (scipy and pandas for whole trials, JAX for its rows) says so and is
left out. Each check has a time limit and an error of its own, and the file is written again after each row, so that a
run that is cut off keeps what it had. First come checks of numbers, side by side; then times, one after the other.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from benchmarks.card import catalogue, lanes  # noqa: E402


def main() -> int:
    """Run the checks; the exit code is 1 where one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.card", description="Is it right and fast on this GPU?")
    parser.add_argument("--out", type=Path, default=Path("card.json"), help="the file (default: %(default)s)")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try the command (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, no more")
    parser.add_argument("--only", nargs="+", default=[], metavar="START", help="checks whose names start so")
    parser.add_argument("--seconds", type=float, default=540.0, help="no check starts later (default: %(default)s)")
    parser.add_argument("--side-by-side", type=int, default=4, metavar="N", help="processes for checks of numbers (4)")
    given = parser.parse_args()
    checks = [each for each in catalogue.checks() if not given.only or each.name.startswith(tuple(given.only))]
    if not checks:
        parser.error(f"no check starts with {', '.join(given.only)}; there are {', '.join(catalogue.names())}")
    run = lanes.Run(given.out, given.device, given.quick, given.seconds)
    failed = run.all(checks, given.side_by_side)
    print(f"written: {given.out}; {len(checks) - failed} of {len(checks)} checks passed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
