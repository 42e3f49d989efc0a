"""Parts that the benchmarks share: timing side by side, a table, and a JSON file with the machine it was measured on.

A ratio is only worth something where both sides met the same machine. ``alternate`` therefore runs the sides in turn,
A B A B ..., and the ratio is taken round by round; its median is what is quoted. Time is the CPU time of this process
(user and system), which other processes disturb less than they disturb a clock on the wall. One thread computes.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from memsweep.recurrence.freed_memory import keep_freed_memory

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""
OUT = ROOT / "benchmarks" / "out"
"""Where results go unless told otherwise."""
PAIRS = 5
"""Rounds of a comparison; medians of fewer say little."""
SHORTEST = 0.05
"""Seconds that one timed stretch lasts at least: short work is repeated within it."""

Row = dict[str, Any]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Options:
    """The options of the command line.

    Attributes:
        quick: small sizes and few rounds, to show that a benchmark runs.
        only: field -> value, as text: rows without these values are left out, and nothing is written.
        out: folder of the JSON files.
    """

    quick: bool = False
    only: Mapping[str, str] = field(default_factory=dict)
    out: Path = OUT

    def wants(self, row: Mapping[str, Any]) -> bool:
        return all(str(row.get(name)) == value for name, value in self.only.items())


def publish(name: str, settings: Row, rows: Sequence[Row], options: Options) -> None:
    """Print the rows, and write them where they are all there."""
    table(rows, name)
    if not options.only:
        write(name, settings, rows, options.out)


def one_thread() -> None:
    """Every figure is one core's; freed memory is kept, as a worker keeps it."""
    torch.set_num_threads(1)
    keep_freed_memory()


def alternate(
    sides: Mapping[str, Callable[[], object]],
    *,
    pairs: int = PAIRS,
    shortest: float = SHORTEST,
    clock: Clock = time.process_time,
) -> dict[str, list[float]]:
    """Time the sides in turn, after one call of each that is not counted.

    Args:
        sides: name -> work.
        pairs: rounds.
        shortest: seconds; work that is shorter is repeated until it fills them.
        clock: seconds since some moment.

    Returns:
        Name -> seconds of one call, one figure a round.
    """
    repeats = {}
    for name, work in sides.items():
        # the first call also compiles and allocates; work that is long enough for that not to show is not tried twice
        first = _seconds(work, 1, clock)
        once = first if first > 10 * shortest else _seconds(work, 1, clock)
        repeats[name] = max(1, math.ceil(shortest / max(once, 1e-7)))
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(pairs):
        for name, work in sides.items():
            found[name].append(_seconds(work, repeats[name], clock))
    return found


def _seconds(work: Callable[[], object], repeats: int, clock: Clock) -> float:
    start = clock()
    for _ in range(repeats):
        work()
    return (clock() - start) / repeats


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Median over the rounds of how many times longer the first side took."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def machine() -> Row:
    """The processor, how many of its cores this process may use, and the memory in GiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": _processor(), "cores": cores, "memory_gib": round(memory, 1)}


def _processor() -> str:
    """Its name, and the widest vectors that torch uses on it."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def versions() -> Row:
    """Of everything that decides how fast it is."""
    import memsweep
    from memsweep.recurrence.layer_outputs import kernels

    return {
        "memsweep": memsweep.__version__,
        "kernels": kernels(torch.float64),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.release()}",
    }


def write(name: str, settings: Row, rows: Sequence[Row], folder: Path = OUT) -> Path:
    """Keep a benchmark's result as ``<folder>/<name>.json``.

    Raises:
        ValueError: a figure is not finite.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    result = {"machine": machine(), "versions": versions(), "settings": settings, "rows": list(rows)}
    path.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    print(f"written: {path}")
    return path


def tell(row: Row) -> None:
    """Print one row as soon as it is known."""
    print(
        ", ".join(f"{name.replace('_', ' ')} {text_of(value)}" for name, value in row.items() if value is not None),
        flush=True,
    )


def table(rows: Sequence[Row], title: str = "") -> None:
    """Print rows, a column per key; figures at three digits."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    columns = list(dict.fromkeys(key for row in rows for key in row))
    shown = Table(title=title or None, title_justify="left", box=box.SIMPLE)
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float | None) for row in rows)
        shown.add_column(column.replace("_", " "), justify="right" if numeric else "left")
    for row in rows:
        shown.add_row(*(text_of(row.get(column)) for column in columns))
    # a file or a pipe has no width: nothing is to be cut off there
    console = Console()
    Console(width=console.width if console.is_terminal else 200).print(shown)


def text_of(value: Any) -> str:
    """A figure at three digits."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)
