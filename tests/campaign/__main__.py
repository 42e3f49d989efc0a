"""``make campaign HOURS=1 SEED=7``, or ``python -m tests.campaign --hours 1 --seed 7``."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.campaign import ledger
from tests.campaign.bench import Bench
from tests.campaign.expected import References
from tests.campaign.faults import KINDS
from tests.campaign.places import ROOT
from tests.campaign.play import play
from tests.campaign.rounds import Deck, Round


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, metavar="H", help="how long to go on (1)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="of all draws (7)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("campaign.jsonl"),
        help="file that every round adds a line to; kinds that it shows least come first",
    )
    parser.add_argument("--keep", type=Path, default=Path("campaign"), help="where rounds with a problem are kept")
    parser.add_argument("--again", type=Path, metavar="FILE", help="run the round of a kept round.json, and end")
    parser.add_argument("--rounds", type=int, metavar="N", help="stop after N rounds")
    parser.add_argument("--inputs", type=int, default=10_000, metavar="N", help="hostile inputs an hour (10,000)")
    parser.add_argument("--kind", action="append", default=[], metavar="NAME", help="draw from these kinds alone")
    parser.add_argument("--where", default="", metavar="WORDS", help="draw from scenarios with these words alone")
    parser.add_argument("--kinds", action="store_true", help="list the kinds of faults, and end")
    parser.add_argument(
        "--counts", nargs="+", type=Path, default=[], metavar="FILE", help="Markdown tables whose injections count, too"
    )
    parser.add_argument(
        "--table", nargs="+", type=Path, metavar="FILE", help="print the table of these files and --counts, and end"
    )
    args = parser.parse_args()
    if args.table:
        print(ledger.table(ledger.read(args.table), args.counts))
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
    entries: list[ledger.Entry] = []
    if args.again:
        entries.append(_one(Round.of_json(json.loads(args.again.read_text())), args, bench, references, folder))
        return 1 if entries[0].problems else 0
    deck = Deck(bench, tuple(args.kind), args.where)
    began = time.monotonic()
    with suppress(KeyboardInterrupt):
        for number in range(args.rounds or sys.maxsize):
            hours = (time.monotonic() - began) / 3600.0
            if hours > args.hours:
                break
            tried = sum(sum(entry.inputs.values()) for entry in entries)
            if tried < hours * args.inputs:
                entries.append(_hostile(args.seed, tried))
                ledger.append(args.out, entries[-1])
            each = deck.draw(args.seed, number, ledger.counts(ledger.read([args.out]), args.counts))
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
    hits = ", ".join(one.kind + (f" ({one.how})" if one.how else "") for one in entry.injections)
    print(f"  {entry.seconds:.0f} s, hit by: {hits or 'nothing'}", flush=True)
    for problem in entry.problems:
        print(f"  PROBLEM: {problem}\n  see {kept}", flush=True)
    return entry


_AT_ONCE = 500
"""Hostile inputs that one process tries."""


def _hostile(seed: int, tried: int) -> ledger.Entry:
    """Some hostile inputs, in a process of their own: one of them may end it."""
    began = time.monotonic()
    number = seed * 1_000_000 + tried
    command = [sys.executable, "-m", "tests.campaign.hostile", str(number), str(_AT_ONCE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600, check=False)
    again = f"python -m tests.campaign.hostile {number} {_AT_ONCE}"
    if done.returncode:
        inputs, problems = {}, [f"{again} ended with code {done.returncode}: {done.stderr[-3000:]}"]
    else:
        inputs, problems = json.loads(done.stdout)
    for problem in problems:
        print(f"  PROBLEM: {problem}\n  again: {again}", flush=True)
    seconds = round(time.monotonic() - began, 1)
    return ledger.Entry(seed, tried, again, [], problems, seconds, inputs)


if __name__ == "__main__":
    sys.exit(main())
