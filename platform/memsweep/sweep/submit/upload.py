"""The upload with a job: shown before, and laid out as the folders that Ray packs."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.errors import counted
from memsweep.sweep.submit.code import code_below
from memsweep.sweep.submit.selection import ENGINE

if TYPE_CHECKING:
    from memsweep.documents.keys.files import UploadItem

_MOST_LINES = 16
_WORKSPACE = "workspace"


@dataclass(frozen=True)
class Upload:
    """The files of a job.

    Attributes:
        workspace: where they lie.
        files: name in the job's working folder -> file.
        engine: name in the engine -> file.
        notes: sentences about what is not uploaded.
    """

    workspace: Path
    files: Mapping[str, Path]
    engine: Mapping[str, Path]
    notes: tuple[str, ...] = field(default=())

    def item(self) -> UploadItem:
        """As JSON has it, with every file."""
        return {
            "workspace": str(self.workspace),
            "files": sorted(self.files),
            "bytes": _bytes(self.files),
            "engine_files": len(self.engine),
            "engine_bytes": _bytes(self.engine),
        }

    def lines(self) -> list[str]:
        """As the terminal has it; where files are many, those of a folder are counted."""
        count, size = counted(len(self.files), "file"), _size(_bytes(self.files))
        engine = f"the engine ({counted(len(self.engine), 'file')}, {_size(_bytes(self.engine))})"
        head = f"upload: {count} ({size}) of {self.workspace}, and {engine}"
        return [head, *(f"  {name}" for name in self._folded()), *self.notes]

    def _folded(self) -> list[str]:
        """The names of the files; where they are many, those of each folder at the top as one line."""
        names = sorted(self.files)
        if len(names) > _MOST_LINES:
            tops = Counter(name[: name.find("/") + 1] or name for name in names)
            names = [f"{top} ({counted(many, 'file')})" if top.endswith("/") else top for top, many in tops.items()]
        return names if len(names) <= _MOST_LINES else [*names[:_MOST_LINES], "... (--json lists all)"]

    @contextmanager
    def laid_out(self, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """A runtime environment with these files, which lie in a temporary folder meanwhile.

        Args:
            given: the fields of the environment; of a folder in ``py_modules`` its code is taken.
        """
        with tempfile.TemporaryDirectory(prefix="memsweep-upload-") as made:
            top = Path(made)
            named = [module for module in given.get("py_modules") or [] if Path(str(module)).name != ENGINE.name]
            modules = [_module(module, top) for module in named]
            _copy(self.files, top / _WORKSPACE)
            _copy(self.engine, top / "engine" / ENGINE.name)
            own = {"working_dir": str(top / _WORKSPACE), "py_modules": [str(top / "engine" / ENGINE.name), *modules]}
            yield {**given, **own}


def _module(given: Any, top: Path) -> str:
    folder = Path(str(given))
    if not folder.is_dir():
        return str(given)  # a wheel, an archive or an address
    target = top / "modules" / folder.resolve().name
    _copy({path.relative_to(folder).as_posix(): path for path in code_below(folder)}, target)
    return str(target)


def _copy(files: Mapping[str, Path], folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, source in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / name)


def _bytes(files: Mapping[str, Path]) -> int:
    return sum(path.stat().st_size for path in files.values())


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
