"""Which tests are slow, by the times that pytest prints: `make test` leaves them out, and `make test-slow` runs them.

    make test ARGS="-m 'not more and not drill and not long' -vv --durations=0" > times.txt
    python tests/slow.py times.txt

Both on an idle machine. It writes ``tests/slow.txt``: a line for each test function, or for each file whose shared
fixtures are slow. A test that is not named there is quick, so that a new one runs in `make test` until someone measures
again.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

SECONDS = 0.25
"""A function is slow whose tests take so long each in the mean, or four times as long together."""
FIXTURES = 1.5
"""A file is slow whose fixtures take so many seconds: whichever of its tests comes first has to wait for them."""
NAMES = Path(__file__).with_suffix(".txt")

_TIME = re.compile(r"([\d.]+)s (call|setup|teardown) +(tests/\S+?\.py)::([\w:]+)(.*)")


def slow(lines: Iterable[str]) -> Iterator[str]:
    """The names of what is slow: ``tests/FILE.py::FUNCTION``, or ``tests/FILE.py``."""
    functions: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    fixtures = defaultdict[str, float](float)
    for line in lines:
        if (found := _TIME.match(line)) is None:
            continue
        seconds, phase, file, function, case = float(found[1]), *found.groups()[1:]
        functions[f"{file}::{function}"][case] += seconds
        fixtures[file] += seconds if phase == "setup" and seconds >= FIXTURES / 2 else 0.0
    yield from (file for file, seconds in fixtures.items() if seconds >= FIXTURES)
    for name, cases in functions.items():
        whole = sum(cases.values())
        if fixtures[name.partition("::")[0]] < FIXTURES and (whole >= SECONDS * len(cases) or whole >= 4 * SECONDS):
            yield name


if __name__ == "__main__":
    NAMES.write_text("".join(f"{name}\n" for name in sorted(slow(Path(sys.argv[1]).read_text().splitlines()))))
