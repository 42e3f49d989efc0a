"""The marks of the house, as numbers: ``python tests/house/marks.py [size] [functions] [config] [flow]``, or all.

``flow`` runs a small sweep twice in one process and prints, of the second, the files of the engine in which a function
runs, and the modules that are imported. ``functions`` counts the lines and the branches of functions. ``size`` counts
lines. ``config`` counts those of ``config/``, and the calls from module to module in it while quickstart is loaded. The
numbers are read by people before and after a wall is moved; tests hold the few that are promises.
"""

from __future__ import annotations

import ast
import contextlib
import io
import statistics
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "platform" / "memsweep"
CONFIG = ENGINE / "config"
STUDY = ("quickstart", "task.horizon=10,20", "model.width=2,3", "model.parameterization=exp", "training.seeds=2")
SWEEP = ("sweep", *STUDY, "training.steps=20", "--inline", "--no-page")

MOMENTS = (
    ("config/load/study.py", "load_study"),
    ("sweep/planning/plan.py", "make_plan"),
    ("learning/loop.py", "train"),
    ("stability/perturbation/error.py", "perturbation_error"),
    ("sweep/store/results.py", "commit"),
    ("stability/verdict/rule.py", "judge"),
    ("report/publish.py", "publish"),
    ("report/terminal.py", "report_text"),
)
"""The steps of a study between the command and the printed verdict: file and function."""

# One more way through a function each.
BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.comprehension,
    ast.match_case,
    ast.Assert,
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def lines(*folders: str, endings: tuple[str, ...] = (".py",)) -> int:
    """All lines of the files with these endings, below these folders of the checkout."""
    files = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in endings)
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files if path.is_file())


def functions() -> Iterator[tuple[str, Function]]:
    """Each function of the engine with its place."""
    for path in sorted(ENGINE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, Function):
                yield f"{path.relative_to(ENGINE)}:{node.lineno} {node.name}", node


def complexity(function: ast.AST) -> int:
    """The ways through a function: branches, conditions of comprehensions, each ``and`` and ``or``, plus one."""
    nodes = list(ast.walk(function))
    words = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    conditions = sum(len(node.ifs) for node in nodes if isinstance(node, ast.comprehension))
    return 1 + sum(isinstance(node, BRANCHES) for node in nodes) + words + conditions


def flow() -> tuple[list[str], list[str]]:
    """Files of the engine in which a function runs in the second of two equal sweeps, and modules that they import."""
    from memsweep.cli import main

    with tempfile.TemporaryDirectory() as folder:
        sweep(main, Path(folder, "first"))
        with traced() as files:
            sweep(main, Path(folder, "second"))
    modules = sorted(name for name in sys.modules if name.partition(".")[0] == "memsweep")
    return sorted(files), modules


def sweep(main: Callable[[list[str]], int], results: Path) -> None:
    """Runs the command line (imported late: ``size`` needs no torch), and ends where the sweep fails."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main([*SWEEP, "--results", str(results)])
    if code:
        sys.exit(f"the sweep ended with {code}:\n{said.getvalue()}")


@contextlib.contextmanager
def traced() -> Iterator[set[str]]:
    """The files of the engine, below it, in which a function is called in the block, in any thread."""
    seen: set[str] = set()
    place = f"{ENGINE}/"

    def look(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(place) and code.co_name != "<module>":
            seen.add(code.co_filename.removeprefix(place))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # typeshed forgets that this ends it


def main_flow() -> list[str]:
    """Files of the engine that lie between the command and each of ``MOMENTS``, and those of the moments, in order.

    They are on the stack when the moment comes for the last time. So verdicts that are said early do not count.
    """
    from memsweep.cli import main

    stacks: dict[tuple[str, str], list[str]] = {}
    place = f"{ENGINE}/"

    def look(frame: FrameType | None, event: str, _: object) -> None:
        code = frame.f_code if frame is not None else None
        if event != "call" or code is None or (code.co_filename.removeprefix(place), code.co_name) not in MOMENTS:
            return
        files = []
        moment = code.co_filename.removeprefix(place), code.co_name
        while frame is not None:
            files.append(frame.f_code.co_filename)
            frame = frame.f_back
        stacks[moment] = [file.removeprefix(place) for file in reversed(files) if file.startswith(place)]

    with tempfile.TemporaryDirectory() as folder:
        before = sys.getprofile()
        sys.setprofile(look)
        try:
            sweep(main, Path(folder))
        finally:
            sys.setprofile(before)
    return [*dict.fromkeys(file for moment in MOMENTS for file in stacks[moment])]


@contextlib.contextmanager
def calls_between(folder: Path, counts: Counter[tuple[str, str]]) -> Iterator[None]:
    """Counts the calls in the block that go from one module of a folder to another: (caller, called) -> calls.

    Each step of a generator counts, because control goes from one to the other. The import of a module does not.
    """
    place = f"{folder}/"

    def look(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_back is None or frame.f_code.co_name == "<module>":
            return
        caller, called = frame.f_back.f_code.co_filename, frame.f_code.co_filename
        if caller != called and caller.startswith(place) and called.startswith(place):
            counts[caller.removeprefix(place), called.removeprefix(place)] += 1

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def print_config() -> None:
    from memsweep.config.load.study import load_study

    load_study("quickstart", workspace=ROOT)  # what a process remembers counts no more
    counts: Counter[tuple[str, str]] = Counter()
    with calls_between(CONFIG, counts):
        load_study("quickstart", workspace=ROOT)
    print(f"config: {lines(str(CONFIG.relative_to(ROOT)))} lines; {counts.total()} calls from module to module")
    for (caller, called), count in counts.most_common(8):
        print(f"    {count} {caller} -> {called}")


def print_size() -> None:
    files = sorted(ENGINE.rglob("*.py"), key=lambda path: -len(path.read_bytes().splitlines()))
    longest = {str(path.relative_to(ENGINE)): len(path.read_bytes().splitlines()) for path in files[:5]}
    print(f"size: {len(files)} files, {lines('platform')} lines of Python; longest {longest}")
    rooms = sorted(path for path in ENGINE.iterdir() if path.is_dir() and path.name != "__pycache__")
    print("  " + ", ".join(f"{room.name} {lines(str(room.relative_to(ROOT)))}" for room in rooms))
    other = lines("platform", endings=(".cpp", ".h", ".js", ".css", ".html", ".j2"))
    print(f"  and {other} lines of C++, scripts and templates, vendored ones included")


def print_functions() -> None:
    found = list(functions())
    sizes = sorted((node.end_lineno or node.lineno) - node.lineno + 1 for _, node in found)
    percentile = sizes[int(0.95 * len(sizes))]
    median = statistics.median(sizes)
    print(f"functions: {len(sizes)}, lines in the median {median:g}, p95 {percentile}, at most {sizes[-1]}")
    busy = sorted(((complexity(node), name) for name, node in found), reverse=True)
    print(f"  {sum(count > 15 for count, _ in busy)} of a complexity above 15:")
    for count, name in busy:
        if count > 15:
            print(f"    {count} {name}")


def print_flow() -> None:
    way = main_flow()
    print(f"main flow: {len(way)} files")
    for name in way:
        print(f"    {name}")
    files, modules = flow()
    print(f"flow: {len(files)} files run, {len(modules)} modules imported")
    for name in files:
        print(f"    {name}")


if __name__ == "__main__":
    marks = {"size": print_size, "functions": print_functions, "config": print_config, "flow": print_flow}
    for name in sys.argv[1:] or marks:
        marks[name]()
