"""``make campaign HOURS=1 SEED=7``, or ``python -m tests.campaign --hours 1 --seed 7``."""

from __future__ import annotations

import argparse
import itertools
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.campaign import ledger
from tests.campaign.bench import Bench
from tests.campaign.faults import KINDS
from tests.campaign.play import References, play
from tests.campaign.rounds import Round, rounds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, metavar="H", help="how long to go on (1)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="of all draws (7)")
    parser.add_argument("--out", type=Path, default=Path("campaign.jsonl"), help="file that every round adds a line to")
    parser.add_argument("--keep", type=Path, default=Path("campaign"), help="where rounds with a problem are kept")
    parser.add_argument("--round", type=int, metavar="K", help="run round K alone, and say how it went")
    parser.add_argument("--rounds", type=int, metavar="N", help="stop after N rounds")
    parser.add_argument("--kind", action="append", default=[], metavar="NAME", help="draw from these kinds alone")
    parser.add_argument("--kinds", action="store_true", help="list the kinds of faults, and end")
    parser.add_argument("--table", nargs="+", type=Path, metavar="FILE", help="print the table of these files, and end")
    args = parser.parse_args()
    if args.table:
        print(ledger.table(ledger.read(args.table)))
        return 0
    if args.kinds:
        print("\n".join(KINDS))
        return 0
    if unknown := [name for name in args.kind if name not in KINDS]:
        parser.error(f"no kind is called {', '.join(unknown)}; see --kinds")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="campaign."))
    try:
        with Bench(folder) as bench:
            return _run(args, bench, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(args: argparse.Namespace, bench: Bench, folder: Path) -> int:
    for sentence in bench.lacks():
        print(f"campaign: {sentence}")
    references = References(folder / "references", bench)
    drawn = rounds(args.seed, bench, tuple(args.kind))
    if args.round is not None:
        drawn = itertools.islice(drawn, args.round, args.round + 1)
    entries: list[ledger.Entry] = []
    last = time.monotonic() + 3600.0 * args.hours
    with suppress(KeyboardInterrupt):
        for each in itertools.islice(drawn, args.rounds):
            if time.monotonic() > last:
                break
            entries.append(_one(each, args, bench, references, folder))
            ledger.append(args.out, entries[-1])
    print(ledger.table(entries))
    wrong = [entry for entry in entries if entry.problems]
    print(f"campaign: {len(entries)} rounds, {sum(len(e.injections) for e in entries)} injections, {len(wrong)} wrong")
    return 1 if wrong else 0


def _one(each: Round, args: argparse.Namespace, bench: Bench, references: References, folder: Path) -> ledger.Entry:
    print(each, flush=True)
    kept = args.keep / f"seed-{args.seed}-round-{each.number}"
    entry = play(each, bench, references, folder / f"round.{each.number}", kept)
    hits = ", ".join(one.kind for one in entry.injections)
    print(f"  {entry.seconds:.0f} s, hit by: {hits or 'nothing'}", flush=True)
    for problem in entry.problems:
        print(f"  PROBLEM: {problem}\n  see {kept}", flush=True)
    return entry


if __name__ == "__main__":
    sys.exit(main())
