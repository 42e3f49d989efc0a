"""Sources that were read are kept: for the same sources alone, and never as something that is needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memsweep.sweep.planning.fingerprint import PACKAGE
from memsweep.sweep.planning.sources.kept import Kept
from memsweep.sweep.planning.sources.source_graph import Module, SourceGraph

ROOT = ("engine.run", "run")
SOURCES = {
    "__init__.py": "",
    "run.py": "from engine.model import Model, spare\n\n\ndef run():\n    return Model().step() + spare()\n",
    "model.py": "class Model:\n    def step(self):\n        return 1\n\n\ndef spare():\n    return 2\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "engine"
    folder.mkdir()
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o700)
    monkeypatch.setenv("MEMSWEEP_CACHE", str(kept))
    return folder


class Graph(SourceGraph):
    """Of one process; notes which modules it reads from their files."""

    def __init__(self, package: Path, kept: Kept | None) -> None:
        def find(module: str) -> Path | None:
            path = package.parent.joinpath(*module.split("."))
            found = [path / "__init__.py", path.with_suffix(".py")]
            return next((each for each in found if each.is_file()), None)

        super().__init__(find, lambda module: not module.startswith("engine"), kept)
        self.read: list[str] = []

    def _read(self, name: str, path: Path) -> Module:
        self.read.append(name)
        return super()._read(name, path)

    def hash(self) -> str:
        def nothing(_: object) -> bool:
            return False

        return self.digest(self.closure([ROOT], nothing), nothing)


def of_new_process(package: Path, *, kept: bool = True) -> Graph:
    return Graph(package, Kept(package) if kept else None)


def test_the_next_process_reads_no_source(package: Path) -> None:
    first, second, without = of_new_process(package), of_new_process(package), of_new_process(package, kept=False)

    assert first.hash() == without.hash()
    assert first.read == without.read != []
    assert second.hash() == first.hash()
    assert second.read == []


@pytest.mark.parametrize("name", ["run.py", "model.py"])
def test_a_changed_source_is_read(package: Path, name: str) -> None:
    before = of_new_process(package).hash()
    (package / name).write_text(SOURCES[name].replace("1", "3").replace("+", "-"))
    graph = of_new_process(package)

    assert graph.hash() == of_new_process(package, kept=False).hash() != before
    assert graph.read != []


def test_what_changes_while_a_process_runs_is_read(package: Path) -> None:
    graph = of_new_process(package)
    before = graph.hash()
    (package / "model.py").write_text(SOURCES["model.py"].replace("1", "3"))
    graph.forget("engine.model")

    assert graph.hash() == of_new_process(package, kept=False).hash() != before
    (package / "model.py").write_text(SOURCES["model.py"])
    assert of_new_process(package).hash() == before, "nothing of the changed file was kept under the old name"


@pytest.mark.parametrize("content", [b"", b"\x80\x05no pickle", b"cos\nabsent\n.", b"N."])
def test_a_broken_file_is_not_used(package: Path, tmp_path: Path, content: bytes) -> None:
    whole = of_new_process(package).hash()
    (file,) = (tmp_path / "kept").glob("sources-*.pickle")
    file.write_bytes(content)
    graph = of_new_process(package)

    assert graph.hash() == whole
    assert graph.read != []
    assert of_new_process(package).hash() == whole


def test_no_folder_is_no_error(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = of_new_process(package).hash()
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("MEMSWEEP_CACHE", str(file))

    assert of_new_process(package).hash() == whole


def test_files_of_four_versions_are_kept(package: Path, tmp_path: Path) -> None:
    killed, writing = tmp_path / "kept" / ".sources-killed", tmp_path / "kept" / ".sources-writing"
    for draft in (killed, writing):
        draft.touch()
    os.utime(killed, (0, 0))
    for number in range(6):
        (package / "model.py").write_text(SOURCES["model.py"].replace("1", str(number)))
        of_new_process(package).hash()

    assert len(list((tmp_path / "kept").glob("sources-*"))) == 4
    assert list((tmp_path / "kept").glob(".sources-*")) == [writing], "a draft of now may be another process's"


def test_the_engine_refers_to_no_module_beside_it() -> None:
    """The kept file holds for any workspace: the name of its file says nothing of other people's modules."""
    from memsweep.sweep.planning.fingerprint import GRAPH

    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        module = GRAPH._module(name)
        places = [
            *module.imports.values(),
            *(target for each in module.references.values() for target in each.values()),
        ]
        assert all(place.partition(".")[0] == "memsweep" for place, _ in places), name


def test_a_source_that_changes_before_it_is_read_is_not_kept_as_it_was(package: Path) -> None:
    """A worker reads modules over hours, and nobody tells it that a file is another one."""
    running, whole = of_new_process(package), of_new_process(package, kept=False).hash()
    running._module("engine.run")
    (package / "model.py").write_text(SOURCES["model.py"].replace("1", "3"))
    running.hash()
    (package / "model.py").write_text(SOURCES["model.py"])

    assert of_new_process(package).hash() == whole


def test_no_home_is_no_error(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    whole = of_new_process(package, kept=False).hash()
    monkeypatch.delenv("MEMSWEEP_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)

    assert of_new_process(package).hash() == whole
