"""Which files a job needs: an allow list. What is not named here stays on this machine.

A study, the tasks of its workspace, the modules that it names, what these import, the data files that its parts
declare, initial weights, what ``INCLUDE`` names, and, where the runtime environment installs the workspace, what its
installation reads.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import builtin
from memsweep.config.load.study_files import included, part_folders
from memsweep.data.folder import DATA_VARIABLE, DataFolderConfig
from memsweep.sweep.planning.fingerprint import configs_in
from memsweep.sweep.planning.identity import data_files
from memsweep.sweep.submit.code import code_below, located, with_imported
from memsweep.sweep.submit.job import SubmissionError

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

INCLUDE = ".memsweepinclude"
"""In a workspace: patterns of further files, one in a line; ``#`` begins a comment."""
ENGINE = Path(__file__).resolve().parents[2]
_WORKING_DIR = "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}"
_PUBLISHED = f"published data sets are not uploaded: the nodes have them in their own {DATA_VARIABLE}"
_INSTALLS = ("pyproject.toml", "setup.cfg", "setup.py", "MANIFEST.in")
_INSTALL_TEXTS = ("README*", "LICENSE*", "LICENCE*", "NOTICE*", "constraints*.txt", "requirements*.txt")


def engine_files() -> dict[str, Path]:
    """The engine's own files by their names in it, with the built-in tasks, studies and rows of the atlas."""
    vendor = ENGINE / "report" / "page" / "vendor"
    paths = [*code_below(ENGINE, _ENGINE_SUFFIXES), *(path for path in sorted(vendor.iterdir()) if path.is_file())]
    files = {path.relative_to(ENGINE).as_posix(): path for path in paths}
    for name, suffix in ((builtin.TASKS, ".py"), (builtin.STUDIES, ".yaml"), (builtin.ATLAS, ".csv")):
        folder = builtin.folder(name)
        found = code_below(folder, {suffix})
        files |= {f"builtin/{name}/{path.relative_to(folder).as_posix()}": path for path in found}
    return files


class Selection:
    """The files of a workspace that are uploaded.

    Args:
        workspace: the folder. Only what lies in it is uploaded, wherever a link leads.

    Attributes:
        files: name in the job's folder -> the file here.
        notes: sentences about what the job needs and does not get.
    """

    def __init__(self, workspace: Path) -> None:
        self.root = workspace.resolve()
        self._folders = (self.root, self.root / builtin.STUDIES)
        self.files: dict[str, Path] = {}
        self.notes: list[str] = []

    def add(self, path: Path, what: str) -> None:
        """A file, or all of a folder but what is hidden.

        Raises:
            SubmissionError: it lies outside of the workspace, or a link leads there; or it is no file.
        """
        path = path if path.is_absolute() else self.root / path
        if path.is_dir():
            for inner in sorted(each for each in path.rglob("*") if each.is_file()):
                if not _is_hidden(inner.relative_to(path)):
                    self.add(inner, what)
            return
        real = path.resolve()
        if not real.is_relative_to(self.root):
            there = f" ({path} leads there)" if path.is_relative_to(self.root) else ""
            raise SubmissionError(
                f"{what}: {real} lies outside of the workspace {self.root}{there}, and only files of the workspace are "
                "uploaded. Copy it into that folder, or give another folder with --workspace."
            )
        if not real.is_file():
            raise SubmissionError(f"{what}: there is no file {path}. Put it there, or take its name out.")
        for each in (real, path):  # a link goes along as a file, and what it leads to under its own name
            if each.is_relative_to(self.root):
                self.files[each.relative_to(self.root).as_posix()] = real

    def add_study(self, study: Path) -> None:
        """A study's file, with the studies that it includes and the parts in the folders beside it."""
        self.add(study, "the study")
        for other in included(study):
            if other.resolve().is_relative_to(self.root) and not other.is_relative_to(builtin.folder(builtin.STUDIES)):
                self.add_study(other)
        if self.root / builtin.STUDIES not in study.parents[:2]:
            return
        own = [folder for folder in part_folders(study) if folder.is_relative_to(self.root)]
        for folder, part in ((each, part) for each in own for part in sorted(each.rglob("*.yaml"))):
            if not part.resolve().is_relative_to(self.root):
                self.notes.append(f"{part.relative_to(self.root)} leads out of the workspace and is not uploaded")
            elif not _is_hidden(part.relative_to(folder.parent)):
                self.add(part, "a part of studies")

    def add_code(self, trials: Sequence[TrialConfig]) -> None:
        """The workspace's tasks, the modules that trials name, and what they import."""
        tasks = self.root / builtin.TASKS
        of_engine = tasks.resolve() == builtin.folder(builtin.TASKS)
        own = [] if of_engine else [*tasks.glob("*.py"), *tasks.glob("[!_.]*/*.py")]
        modules = [file for target in _factories(trials) for file in self._module_files(target)]
        reached, outside = with_imported([*own, *modules], self.root, self._folders)
        for file, place in sorted(outside.items()):
            self.add(place, f"{file.relative_to(self.root)} imports it")
        for file in sorted(reached):
            self.add(file, "code")

    def _module_files(self, target: str) -> list[Path]:
        """The files of a factory: the module's, or all of its package's; none where it is installed."""
        place = target.partition(":")[0]
        if not (place.endswith(".py") or "/" in place):
            return located(place, self._folders)
        if Path(place).is_absolute():
            raise elsewhere("model.factory", target) if Path(place).is_relative_to(self.root) else _outside(target)
        places = [folder / place for folder in (Path.cwd(), *self._folders)]
        found = next((path for path in places if path.is_file()), self.root / place)
        self.add(found, f"model.factory {target!r}")
        return [found]

    def add_data(self, trials: Sequence[TrialConfig], words: Iterable[str]) -> None:
        """The data files and the initial weights that trials declare.

        Args:
            trials: of the study.
            words: the study's text and the words of the command line.

        Raises:
            SubmissionError: one is named by its path on this machine, which the cluster does not have.
        """
        texts = [*words]
        for trial in {(trial.task, trial.model): trial for trial in trials}.values():
            for owner, path in data_files(trial):
                if not isinstance(owner, DataFolderConfig):
                    self._add_data_file(path.absolute(), f"a data file of {owner.name}", texts)
                elif _PUBLISHED not in self.notes:
                    self.notes.append(_PUBLISHED)
        for training in dict.fromkeys(trial.training for trial in trials):
            if (file := training.weights_file) is None:
                continue
            if not Path(training.weights).is_absolute():  # an absolute path may lie where all nodes see it
                self.add(file, "training.weights")
            elif file.resolve().is_relative_to(self.root):
                raise elsewhere("training.weights", training.weights)

    def _add_data_file(self, path: Path, what: str, texts: Sequence[str]) -> None:
        inside = path.is_relative_to(self.root)
        if inside and any(str(path) in text for text in texts):
            raise elsewhere(what, str(path))
        relative = {os.path.relpath(path), os.path.relpath(path, self.root)}
        if inside or any(each in text for each in relative for text in texts):
            self.add(path, what)  # any other path may lie where all nodes see it

    def add_included(self) -> None:
        """Adds the files that ``INCLUDE`` names.

        Raises:
            SubmissionError: a pattern fits no file, or leads out of the workspace.
        """
        if not (self.root / INCLUDE).is_file():
            return
        for line in (self.root / INCLUDE).read_text("utf-8").splitlines():
            pattern = line.partition("#")[0].strip().removeprefix("./").rstrip("/")
            if not pattern:
                continue
            if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
                raise SubmissionError(f"{INCLUDE} names {pattern!r}. Name files of the workspace, relative to it.")
            hidden = any(part.startswith(".") for part in Path(pattern).parts)
            paths = sorted(self.root.glob(pattern))
            found = [path for path in paths if hidden or not _is_hidden(path.relative_to(self.root))]
            if not found:
                raise SubmissionError(f"{INCLUDE} names {pattern!r}, and no file fits. Put it there, or take it out.")
            for path in found:
                self.add(path, f"{INCLUDE} names {pattern!r}")

    def add_installation(self, given: Mapping[str, Any]) -> None:
        """Adds the files that an installation of the workspace reads; none unless a runtime environment installs it."""
        text = json.dumps(dict(given), default=str)
        if isinstance(file := given.get("pip"), str) and Path(file).is_file():
            text += Path(file).read_text("utf-8")
        if _WORKING_DIR not in text:
            return
        for name in re.findall(re.escape(_WORKING_DIR) + r"/([^\s\"'\\]+)", text):
            self.add(self.root / name, "the runtime environment")
        is_checkout = ENGINE.is_relative_to(self.root)  # no kernels there: the job's engine compiles them at first use
        names = [name for name in _INSTALLS if not (is_checkout and name == "setup.py")]
        found = [path for pattern in (*names, *_INSTALL_TEXTS) for path in sorted(self.root.glob(pattern))]
        for path in [*found, *(each for folder in _packages(self.root) for each in code_below(folder))]:
            if path.is_file():
                self.add(path, "the installation of the workspace")


_OF_A_USER = "module"
"""The name of the model, and of the unit, that a factory of a user makes."""
_ENGINE_SUFFIXES = frozenset({*(".py", ".pyi", ".typed", ".txt", ".css", ".js", ".svg", ".j2"), *(".so", ".cpp", ".h")})


def elsewhere(field: str, path: str) -> SubmissionError:
    """The error about a file of the workspace that is named by its absolute path."""
    return SubmissionError(
        f"{field} is {path!r}: the cluster has the workspace under another path. Write the file's path relative to the "
        "workspace."
    )


def _outside(target: str) -> SubmissionError:
    return SubmissionError(
        f"model.factory is {target!r}, which lies outside of the workspace: only files of the workspace are uploaded. "
        "Copy it into that folder, and write its path relative to it."
    )


def _factories(trials: Iterable[TrialConfig]) -> list[str]:
    """Of models, and of units in them."""
    configs = (each for trial in trials for each in configs_in(trial.model))
    return [*dict.fromkeys(each.factory for each in configs if getattr(each, "name", "") == _OF_A_USER)]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def _packages(root: Path) -> list[Path]:
    """The folders and files that hold the code of a workspace that can be installed."""
    try:
        content = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    except (OSError, ValueError):
        content = {}
    tool = content.get("tool", {}).get("setuptools", {})
    packages = tool.get("packages", {})
    where = packages.get("find", {}).get("where", []) if isinstance(packages, dict) else packages
    name = re.sub(r"[-.]+", "_", str(content.get("project", {}).get("name", "")))
    folders = [*where, *tool.get("package-dir", {}).values(), "src", *([name] if name else [])]
    inside = [root / each.replace(".", "/") for each in folders if each not in ("", ".")]
    return [each for each in dict.fromkeys(inside) if each.is_dir()]
