"""Prints the marks of a room: ``python tests/house/marks.py config`` counts what it holds and what it does."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "platform" / "memsweep"
CONFIG = ENGINE / "config"


@contextmanager
def calls_between(folder: Path, counts: Counter[tuple[str, str]]) -> Iterator[None]:
    """Counts the calls inside the context that go from one module of a folder to another: (caller, called) -> calls.

    Each step of a generator counts, because control goes from one to the other. The import of a module does not.
    """
    modules: dict[str, str] = {}

    def module(frame: FrameType | None) -> str:
        """The frame's module below the folder; empty for any other code."""
        if frame is None:
            return ""
        file = frame.f_code.co_filename
        if file not in modules:
            inside = Path(file).is_relative_to(folder)
            modules[file] = str(Path(file).relative_to(folder)) if inside else ""
        return modules[file]

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            caller, called = module(frame.f_back), module(frame)
            if caller and called and caller != called:
                counts[caller, called] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


def of_config() -> None:
    """Lines of ``config/``, and calls from module to module of it while ``quickstart`` is loaded."""
    from memsweep.config.load.study import load_study

    load_study("quickstart", workspace=ROOT)  # what is remembered in a process counts no more
    counts: Counter[tuple[str, str]] = Counter()
    with calls_between(CONFIG, counts):
        load_study("quickstart", workspace=ROOT)
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in CONFIG.rglob("*.py"))
    print(f"lines of config/: {lines:,}")
    print(f"calls from module to module in config/ while quickstart is loaded: {counts.total():,}")
    for (caller, called), number in counts.most_common(12):
        print(f"  {number:6,}  {caller} -> {called}")


MARKS: dict[str, Callable[[], None]] = {"config": of_config}


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name in MARKS]
    if not names or names != sys.argv[1:]:
        sys.exit(f"usage: python {sys.argv[0]} {{{','.join(MARKS)}}}")
    for name in names:
        MARKS[name]()
