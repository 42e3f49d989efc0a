"""Which code and which files make a trial's numbers, and hashes of them: when these change, nothing is reused."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.sweep.planning.imports import OURS, File, code_below, package_files, version, with_imports

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

PACKAGE = Path(__file__).resolve().parents[2]
NUMBER_FOLDERS = ("models", "recurrence", "rules", "data", "learning", "stability")
"""Every file of code in these makes numbers, unless it is exempt; a new one is hashed without a word here."""
_NUMBER_FILES = (
    *("streams.py", "trial.py"),
    *("config/schema/trial.py", "config/schema/chain.py", "config/schema/canonical.py", "config/core/merge.py"),
    "sweep/planning/chain_values.py",
)
EXEMPT = {
    "stability/verdict/rule.py": "judges what was measured: another rule changes no measurement",
    "stability/verdict/slopes.py": "fits stored radii for the verdict",
    "stability/verdict/radius.py": "reads radii off stored curves",
    "stability/verdict/evidence.py": "gathers stored radii for the verdict",
    "stability/comparison/metrics.py": "reads stored results by the names of metrics",
    "stability/comparison/paired.py": "compares what was measured",
    "stability/comparison/signed_rank.py": "the test by which it is compared",
    "stability/comparison/selection_bias.py": "compares what a search saw with what was measured anew",
    "__init__.py": "the version of the package",
    "config/__init__.py": "says what is in the folder",
    "errors.py": "words of errors alone",
    "outcome.py": "names of endings; which one a trial comes to is decided in learning and stability",
    "registry.py": "finds parts by name; the parts that it finds are hashed themselves",
    "config/core/build.py": "builds configs, and every value of what it builds is in the identity",
    "config/core/values.py": "reads single values, and every value is in the identity",
    "config/core/fields.py": "declares fields; defaults and values are in the identity",
    "config/schema/groups.py": "declares fields of the optimizer's groups, and refuses; every value is in the identity",
    "config/schema/carried_states.py": "refuses what a task cannot run with",
    "config/schema/learning_rule.py": "refuses rules by which a model cannot learn",
    "config/schema/micro_batches.py": "refuses parts of batches",
    "config/core/reflect.py": "lists the fields of a config, and every one of them is in the identity",
    "config/core/problems.py": "words of errors alone",
    "config/claims/sections.py": "published verdicts, shown beside ours in the report; no trial sees them",
    "config/claims/comparisons.py": "claims to be tested in the report; no trial sees them",
    "config/claims/sentences.py": "the grammar of such claims",
    "config/schema/search.py": "says what is searched; what a trial is given of it is in the identity",
}
"""Files that a trial imports, or that lie among those that make numbers, and why they cannot change one."""


def code_fingerprint(config: TrialConfig) -> str:
    """A hash of the source files that make this trial's numbers, 16 hexadecimal digits.

    Beside the engine: the own code of the task, of the model, and of every registered part that the config names,
    with what these import from outside of installed libraries. A comment counts, too: whether a change of a file
    changes numbers cannot be told from the file.
    """
    return _hash_files(frozenset(engine_files().items()).union(*(_own_files(part)[0] for part in parts(config))))


def data_fingerprint(config: Any) -> str:
    """A hash of the files that the config's parts read, 16 hexadecimal digits; empty where they read none.

    A part that reads files says which: ``data_files(config)``, a class method, gives their paths in a fixed order. Of a
    folder in their place, the names and sizes of the files in it are hashed.
    """
    found = [path for owner in _configs(config) for path in _data_files(owner)]
    return _hash_data(tuple((path, *_changed(path)) for path in found)) if found else ""


def libraries(config: TrialConfig) -> dict[str, str]:
    """Versions of the installed libraries that decide this trial's numbers: the engine's, and what its parts import."""
    names = {"torch", "numpy", "scipy"}.union(*(_own_files(part)[1] for part in parts(config)))
    return {name: found for name in sorted(names) if (found := version(name))}


def parts(config: Any) -> tuple[type, ...]:
    """The registered parts that a config names, at any depth, each once."""
    chosen = [(owner.kind, owner.name) for owner in _configs(config)]
    return tuple(dict.fromkeys(registry.get(kind, name) for kind, name in (*chosen, *_by_name(config))))


def _by_name(value: Any) -> Iterator[tuple[str, str]]:
    """Kind and name of the parts that fields hold by name alone, such as a learning rule."""
    for field in dataclasses.fields(value) if dataclasses.is_dataclass(value) else ():
        held = getattr(value, field.name)
        if kind := field.metadata.get("named"):
            yield kind, held
        else:
            yield from _by_name(held)


def _configs(value: Any) -> Iterator[Any]:
    """The Configs of registered parts, at any depth."""
    if dataclasses.is_dataclass(value):
        if getattr(value, "kind", None) in registry.KINDS:
            yield value
        for field in dataclasses.fields(value):
            yield from _configs(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield from _configs(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _configs(item)


def _data_files(owner: Any) -> list[Path]:
    told = getattr(registry.get(owner.kind, owner.name), "data_files", None)
    return [Path(path) for path in told(owner)] if told is not None else []


@functools.cache
def engine_files() -> dict[str, Path]:
    """The engine's own files that make numbers, by their place in the package."""
    found = {name: PACKAGE / name for name in _NUMBER_FILES}
    for folder in NUMBER_FOLDERS:
        found |= {str(path.relative_to(PACKAGE)): path for path in code_below(PACKAGE / folder)}
    return {f"memsweep/{name}": path for name, path in found.items() if name not in EXEMPT}


@functools.cache
def _own_files(part: type) -> tuple[frozenset[File], frozenset[str]]:
    """The files that define a part, by a name that is the same on every machine, and the libraries they import.

    These are the files of its class and of the classes it inherits from. In a package, all of its code; beside a
    single file such as a workspace's task, its helpers, by convention the files whose names begin with an underscore.
    """
    files: set[File] = set()
    for base in part.__mro__:
        top = base.__module__.partition(".")[0]
        if top in OURS or top == "torch":
            continue
        file = registry.source_file(base)
        package = getattr(sys.modules.get(top), "__path__", None) if "." in base.__module__ else None
        if package:
            files |= package_files(package)
        else:
            files |= {(path.name, path) for path in (file, *file.parent.glob("_*.py"))}
    return with_imports(files)


@functools.lru_cache(maxsize=256)
def _hash_files(files: frozenset[File]) -> str:
    # by name and content, not by place: the same code on another machine has the same fingerprint
    contents = sorted((name, hashlib.sha256(path.read_bytes()).hexdigest()) for name, path in files)
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()[:16]


def _changed(path: Path) -> tuple[int, int]:
    """What tells a file that was written anew; absent files are a matter of the task, which says what is missing."""
    try:
        about = path.stat()
    except OSError:
        return -1, 0
    return about.st_size, about.st_mtime_ns


def _entries(folder: Path) -> bytes:
    """The name of a folder, and names and sizes of the files in it, by name."""
    with os.scandir(folder) as entries:
        found = sorted((entry.name, entry.stat().st_size) for entry in entries if entry.is_file())
    return repr((folder.name, found)).encode("utf-8", errors="surrogatepass")


@functools.lru_cache(maxsize=16)
def _hash_data(files: tuple[tuple[Path, int, int], ...]) -> str:
    told = hashlib.sha256()
    for path, size, _ in files:
        if path.is_dir():  # which may have another size on another machine
            told.update(_entries(path))
            continue
        told.update(f"{path.name}\n{size}\n".encode("utf-8", errors="surrogatepass"))
        if size >= 0:
            with path.open("rb") as file:
                told.update(hashlib.file_digest(file, "sha256").digest())
    return told.hexdigest()[:16]
