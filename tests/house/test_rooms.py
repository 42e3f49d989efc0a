"""The rooms of the house: how much lies in one, how imports run between them, and that the tests have the same ones."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import grimp
from marks import CONFIG, calls_between, main_flow

from memsweep.config.load.study import load_study
from paths import ROOT, TESTS

ENGINE = ROOT / "platform" / "memsweep"
LINES = 450  # no source file is longer
FILES = 12  # no folder holds more, besides the file that makes it a package

OWN = {"campaign", "deploy", "drills", "house", "support"}
"""Folders of tests that are about no room of the engine, or about all of them together."""


def sources() -> list[Path]:
    folders = (ENGINE, ROOT / "tasks", ROOT / "benchmarks", TESTS)
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def test_no_file_is_long() -> None:
    counts = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    long = {str(path.relative_to(ROOT)): count for path, count in counts.items() if count > LINES}
    assert not long, f"over {LINES} lines; split by reason to exist: {long}"


def test_no_folder_is_crowded() -> None:
    counts = Counter(path.parent for path in sources() if path.name != "__init__.py")
    crowded = {str(path.relative_to(ROOT)): count for path, count in counts.items() if count > FILES}
    assert not crowded, f"over {FILES} files in a folder; cut it by subject into sub-folders: {crowded}"


def test_studies_lie_in_rooms_and_have_names_of_their_own() -> None:
    files = [path for path in (ROOT / "search_spaces").rglob("*") if path.is_file()]
    rooms = Counter(path.parent for path in files)
    assert {room.parent for room in rooms} == {ROOT / "search_spaces"}
    assert max(rooms.values()) <= FILES
    assert {name for name, count in Counter(path.name for path in files).items() if count > 1} == set()


def test_the_tests_lie_in_the_rooms_of_the_engine() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    rooms = {path for path in folders if path.parts and path.parts[0] not in OWN}
    strange = [
        str(room) for room in rooms if not ((ENGINE / room).is_dir() or (ENGINE / room).with_suffix(".py").is_file())
    ]
    assert not strange, f"folders of tests that are no folder or module of memsweep: {sorted(strange)}"
    assert Path() not in folders, "a test lies in tests/ itself; put it into the room that it is about"
    untested = {path.name for path in ENGINE.iterdir() if (path / "__init__.py").is_file()} - {
        room.parts[0] for room in rooms
    }
    assert not untested, f"rooms of the engine without a folder of tests: {sorted(untested)}"


def test_no_folder_of_tests_hides_a_package() -> None:
    """pytest puts the folder of each test on Python's path: a folder in it would be found as a package of its name."""
    packages = importlib.metadata.packages_distributions().keys() | sys.stdlib_module_names
    on_path = {TESTS, *(path.parent for path in TESTS.rglob("test_*.py"))}
    hiding = [path for folder in on_path for path in folder.iterdir() if path.is_dir() and path.name in packages]
    assert not hiding, f"folders with the name of an installed package: {hiding}"


def test_imports_point_down() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Contracts: \d+ kept, 0 broken", done.stdout), done.stdout


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Groups of modules each of which imports all others of its group, directly or through them (Tarjan)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    waiting: list[str] = []
    groups: list[set[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        waiting.append(module)
        for other in imports[module]:
            if other not in order:
                visit(other)
            if other in waiting:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == order[module]:
            start = waiting.index(module)
            groups.append(set(waiting[start:]))
            del waiting[start:]

    for module in imports:
        if module not in order:
            visit(module)
    return [group for group in groups if len(group) > 1]


def test_a_circle_of_imports_is_seen() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert circles(imports) == [{"b", "c"}]


def test_no_module_imports_itself_through_others() -> None:
    """Imports for types alone and inside of functions count as well: they are what a reader follows."""
    graph = grimp.build_graph("memsweep", exclude_type_checking_imports=False, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    names = [{module.removeprefix("memsweep.") for module in circle} for circle in circles(imports)]
    assert names == []


NAMING = ("learning", "stability", "sweep", "report", "trial.py")
"""Rooms that loop over measures and analyses, and name none."""
OF_OTHERS = {
    "report/audit.py": {"capacity"},
    "report/page/render.py": {"growth"},
    "report/rows/verdicts.py": {"growth"},
}
"""Words of the audit, and of the verdicts' own growth of an error."""
_QUOTED = re.compile(r"""(["'`])([a-z][a-z_-]+)\1""")


def test_the_core_names_no_measure_and_no_analysis() -> None:
    """Neither as a word of its own in quotes, nor in a template or the page's script. Analyses are the report's."""
    measures, analyses = ({path.name for path in (ENGINE / room).iterdir()} for room in ("measures", "analyses"))
    found = {}
    for room in NAMING:
        names = {*measures, *(analyses if room == "report" else ())} - {"__init__.py", "__pycache__"}
        names |= {name.replace("_", "-") for name in names}
        for path in sorted(
            p for p in [ENGINE / room, *(ENGINE / room).rglob("*")] if p.suffix in (".py", ".js", ".j2")
        ):
            text = path.read_text(encoding="utf-8") if "vendor" not in path.parts else ""
            place = path.relative_to(ENGINE).as_posix()
            named = {word for _, word in _QUOTED.findall(text)} & names - OF_OTHERS.get(place, set())
            found |= {place: named} if named else {}
    assert found == {}


def test_a_study_takes_few_calls_to_become_a_configuration() -> None:
    """From module to module of the room, the second time in a process: one tree is merged, and each part built once."""
    load_study("quickstart", workspace=ROOT)
    counts: Counter[tuple[str, str]] = Counter()
    with calls_between(CONFIG, counts):
        load_study("quickstart", ["task.kernel=exponential"], ROOT)
    assert 100 < counts.total() < 850, counts
    assert counts["load/tree.py", "core/merge.py"] < 10, counts


def test_the_documented_way_of_a_study_is_that_of_a_trace() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("## The way of the data")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([\w/]+\.py)` \|", table, re.MULTILINE) == main_flow()
