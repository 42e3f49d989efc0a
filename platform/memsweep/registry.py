"""Names for parts: tasks, models, parameterizations, recurrent units, learning rules, measures, analyses.

A part registers itself with a decorator, and is then available by name. Registration refuses a class that the engine
could not run: each part is a subclass of its kind's base class, defines all abstract methods, and owns a frozen
``Config`` dataclass. A base class may ask for more in ``registration_problem``.

``discover`` finds what can register: the engine's own models, rules, measures and analyses, the built-in tasks, the
workspace's ``tasks/`` folder, and installed distributions that announce the entry-point group ``memsweep.plugins``. A
module of the engine is imported when one of its parts is asked for; everything else at once. A task of the workspace
takes the place of a built-in one of its name; any other name belongs to one part.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import logging
import os
import re
import shlex
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from memsweep import builtin
from memsweep.errors import RegistryError, did_you_mean, one_of

TASK, MODEL, PARAMETERIZATION, UNIT, RULE = "task", "model", "parameterization", "unit", "rule"
MEASURE, ANALYSIS = "measure", "analysis"
NAMED = (TASK, MODEL, PARAMETERIZATION, UNIT, RULE)
"""Kinds of which a study names one. A measure is a field of a section, called as the part is."""
KINDS = (*NAMED, MEASURE, ANALYSIS)
MEASURES, ANALYSES = "memsweep.measures", "memsweep.analyses"
"""Packages of the parts that are options."""
ENTRY_POINT_GROUP = "memsweep.plugins"
_BASES = {
    TASK: ("memsweep.data.api", "Task"),
    MODEL: ("memsweep.models.base", "Model"),
    PARAMETERIZATION: ("memsweep.models.parameterizations.base", "Parameterization"),
    UNIT: ("memsweep.models.deep.unit", "Unit"),
    RULE: ("memsweep.rules.base", "Rule"),
    MEASURE: ("memsweep.stability.optional", "Measure"),
    ANALYSIS: ("memsweep.report.values.analysis", "Analysis"),
}
"""Module and name of each kind's base class; by name, because the registry stands below all of them."""

_MAY_LACK_FIELDS = (PARAMETERIZATION, RULE, ANALYSIS)
"""Kinds whose parts get an empty Config where they write none."""

_log = logging.getLogger(__name__)
_OWN = ("memsweep.models", "memsweep.rules", MEASURES, ANALYSES)
"""The packages of the engine in which parts register themselves."""
_REGISTERS = re.compile(r"""^@register_(\w+)\(["'](\w+)["']\)""", re.MULTILINE)
_parts: dict[str, dict[str, type]] = {kind: {} for kind in KINDS}
_waiting: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
"""By kind and name: the engine's module that registers a part, and is not imported before the part is asked for."""
_folders: list[Path] = []
_put_off: list[bool] = []
"""Holds something after ``discover_when_asked``, until the rest has been discovered."""
_held: list[bool] = []
"""Holds something for each ``files_held`` that has not ended."""
_of_files: dict[str, list[tuple[str, str, type]]] = {}
"""By module of an imported task file: kind, name and class of each part that it registered."""
_Part = TypeVar("_Part", bound=type)


def register_task(name: str) -> Callable[[_Part], _Part]:
    """Class decorator: make a task available to studies as ``task: {name: <name>, ...}``.

    Raises:
        RegistryError: as all ``register_`` functions, where the class lacks something that the engine needs of its
            kind, or the name belongs to another class.
    """
    return _register(TASK, name)


def register_model(name: str) -> Callable[[_Part], _Part]:
    """Class decorator: make a model available to studies as ``model: {name: <name>, ...}``."""
    return _register(MODEL, name)


def register_parameterization(name: str) -> Callable[[_Part], _Part]:
    """Class decorator: make a parameterization available as ``model: {parameterization: <name>}``."""
    return _register(PARAMETERIZATION, name)


def register_unit(name: str) -> Callable[[_Part], _Part]:
    """Class decorator: make a recurrent unit available to deep models as ``model: {unit: <name>}``."""
    return _register(UNIT, name)


def register_rule(name: str) -> Callable[[_Part], _Part]:
    """Class decorator: make a learning rule available as ``training: {rule: <name>}``."""
    return _register(RULE, name)


def register_measure(name: str) -> Callable[[_Part], _Part]:
    """Class decorator: make a measure of trained models available as ``perturbation: {<name>: {...}}``."""
    return _register(MEASURE, name)


def register_analysis(name: str) -> Callable[[_Part], _Part]:
    """Class decorator: make an analysis of stored tables a part of every report."""
    return _register(ANALYSIS, name)


def _register(kind: str, name: str) -> Callable[[_Part], _Part]:
    def decorate(part: _Part) -> _Part:
        if kind in _MAY_LACK_FIELDS and isinstance(part, type) and "Config" not in part.__dict__:
            part.Config = _without_fields(part)  # type: ignore[attr-defined]
        if problem := _problem(kind, part):
            raise RegistryError(f"{kind} {name!r} ({getattr(part, '__qualname__', part)}) {problem}")
        known = _known(kind, name)
        # the same class again is a file that was imported twice, and harmless
        twice = known is not None and (known.__qualname__, source_file(known)) != (part.__qualname__, source_file(part))
        if known is not None and twice and not _may_replace(known, part):
            places = " and ".join(f"{other.__qualname__} in {source_file(other)}" for other in (known, part))
            raise RegistryError(f"two {kind}s are named {name!r}: {places}. Rename one of them.")
        config: Any = part.__dict__["Config"]
        config.name, config.kind = name, kind  # so that a Config leads back to its part
        _parts[kind][name] = part
        return part

    return decorate


@contextmanager
def lent(kind: str, name: str, part: type) -> Iterator[None]:
    """A part that has its name while the context lasts: no study can name it."""
    _register(kind, name)(part)
    try:
        yield
    finally:
        _parts[kind].pop(name, None)


def _may_replace(known: type, part: type) -> bool:
    """Whether a built-in task meets one of the workspace."""
    own = [folder / builtin.TASKS for folder in _folders[:1]]
    return _is_built_in(known) and any(source_file(part).is_relative_to(folder) for folder in own)


def _without_fields(part: type) -> type:
    """A Config for a part that has nothing to be set; a name of its own, so that it can be pickled."""
    names = {"__module__": part.__module__, "__qualname__": f"{part.__qualname__}.Config", "__doc__": part.__doc__}
    return dataclass(frozen=True, kw_only=True)(type("Config", (), names))


def _problem(kind: str, part: Any) -> str | None:
    """Says what a class lacks to be a part of this kind, and what to write: the end of a sentence. None: nothing."""
    module, base_name = _BASES[kind]
    base = getattr(importlib.import_module(module), base_name)
    if not isinstance(part, type) or not issubclass(part, base):
        if kind == MODEL and callable(getattr(part, "forward", None)):  # an nn.Module, without an import of torch
            factory = f"{Path(inspect.getfile(part)).stem}:{part.__name__}"
            return (
                f"is not a subclass of {base_name}. A plain torch module needs no registration: write in the study "
                f"'model: {{name: module, factory: \"{factory}\", width: 16}}' (see docs/your_model.md). For a faster "
                f"model of its own kind subclass {module}.{base_name}."
            )
        return (
            f"is not a subclass of {base_name}: write 'class {getattr(part, '__name__', part)}({base_name})', with "
            f"'from {module} import {base_name}'."
        )
    if abstract := sorted(getattr(part, "__abstractmethods__", ())):
        return f"lacks {', '.join(abstract)}: define each as the docstrings of {module}.{base_name} say."
    config = part.__dict__.get("Config")
    if not getattr(getattr(config, "__dataclass_params__", None), "frozen", False):
        return (
            "has no Config of its own: write inside the class '@dataclass(frozen=True, kw_only=True) class Config: "
            "...', with one setting() per field."
        )
    # annotations hold those of the class, too, and fields what it inherits
    known = {*vars(config).get("__annotations__", {}), *(each.name for each in fields(cast(Any, config)))}
    if taken := sorted(known & {"name", "kind"}):
        return f"has a field {taken[0]} in its Config, a name that the engine needs there: call it otherwise."
    # another name of measures: one that models have, too, would count in the identities of their trials
    asked = "table_problem" if kind == MEASURE else "registration_problem"
    further: Callable[[], str | None] | None = getattr(part, asked, None)
    return further() if further else None


def names(kind: str) -> list[str]:
    """The registered names of a kind, one of ``KINDS``, sorted."""
    return sorted(_parts[kind].keys() | _waiting[kind].keys())


def loaded() -> list[type]:
    """The registered classes whose modules are imported: all from outside of the engine, and what was asked for."""
    return [part for parts in _parts.values() for part in parts.values()]


def get(kind: str, name: str) -> Any:
    """The registered class.

    Raises:
        KeyError: no part of this kind has this name; the message lists the names that exist.
    """
    if name not in names(kind) and _put_off:
        discover()
    part = _known(kind, name)
    if part is None:
        raise KeyError(unknown(kind, name))
    return part


def _known(kind: str, name: str) -> type | None:
    """The registered class, whose module is imported where it has waited for this."""
    if (module := _waiting[kind].get(name)) is not None:
        importlib.import_module(module)
        _waiting[kind].pop(name, None)
    return _parts[kind].get(name)


def unknown(kind: str, name: object) -> str:
    """The sentence that says that a name is not registered, with a suggestion and all names."""
    known = names(kind)
    return f"{kind} {name!r} is not registered.{did_you_mean(name, known)} Registered {kind}s: {one_of(known)}."


def source_file(part: type) -> Path:
    """The file that defines a registered part: its code belongs to a trial's identity."""
    return Path(inspect.getfile(part)).resolve()


def folders() -> list[Path]:
    """The folders in which a study's own Python files are looked for: of the latest workspace, and of its studies."""
    return list(_folders)


def discover(workspace: Path | None = None) -> list[str]:
    """Find everything that registers parts; safe to call again. The workspace decides ``folders``.

    Args:
        workspace: folder whose ``tasks/*.py`` and ``tasks/*/*.py`` are imported, but for names that begin with ``_``
            (None: engine, built-in tasks and plugins only).

    Returns:
        One sentence for each plugin or task file that failed to import; it is skipped, the others work.
    """
    _put_off.clear()
    for package in _OWN:
        find_in(package)
    task_folders = [builtin.folder(builtin.TASKS)]
    if workspace is not None:
        root = Path(workspace).resolve()
        _folders[:] = [root, root / builtin.STUDIES]
        task_folders.append(root / builtin.TASKS)
    broken = []
    for path in dict.fromkeys(path for folder in task_folders for path in _task_files(folder)):
        broken += _attempt(f"task file {path}", partial(_import_file, path), path)
    broken += _load_plugins()
    for sentence in broken:
        _log.debug("%s", sentence)
    return broken


def look_in(workspace: Path) -> None:
    """Let the engine's parts wait for whoever asks, and the workspace decide ``folders``: no file of it is imported."""
    for package in _OWN:
        find_in(package)
    root = workspace.resolve()
    _folders[:] = [root, root / builtin.STUDIES]


def replaced_tasks() -> dict[str, Path]:
    """The built-in tasks in whose place a task of the workspace stands, with its file; equal files replace nothing."""
    found = {}
    for kind, name, part in (each for parts in _of_files.values() for each in parts):
        now = source_file(_parts[kind].get(name, part))
        if _is_built_in(part) and now.read_bytes() != source_file(part).read_bytes():
            found[name] = now
    return found


def _task_files(folder: Path) -> list[Path]:
    """The files of a ``tasks`` folder and of the folders in it."""
    return sorted([*folder.glob("[!_]*.py"), *folder.glob("[!_.]*/[!_]*.py")])


def discover_when_asked(package: str) -> None:
    """Find what one package registers, measures, analyses and plugins; and the rest when ``get`` lacks a part.

    For commands that read results: most models and tasks import torch, and a workspace's files are not needed. Where
    they come with the results, they are somebody else's program.
    """
    for each in (package, MEASURES, ANALYSES):
        find_in(each)
    _load_plugins()  # any of them may have a measure or an analysis, which a report has to know
    _put_off[:] = [True]


@contextmanager
def files_held() -> Iterator[None]:
    """While it lasts, imported files of a person stay as they are: a trial is of one code, whatever is edited."""
    _held.append(True)
    try:
        yield
    finally:
        _held.pop()


def files_are_held() -> bool:
    """Whether a trial is computed in this process (``files_held``)."""
    return bool(_held)


def _attempt(what: str, load: Callable[[], object], file: Path | None = None) -> list[str]:
    try:
        load()
    except (Exception, SystemExit) as error:  # any fault of foreign code, sys.exit() too: name it, skip it, go on
        said = f"{what} was skipped: {type(error).__name__}: {error}{_of_neighbours(file, error)}"
        if isinstance(error, SyntaxError) and error.filename:  # its text names the file and the line
            return [said]
        frames = [each for each in traceback.extract_tb(error.__traceback__) if os.path.isabs(each.filename)]
        own = [each for each in frames if Path(each.filename).resolve().parent != Path(__file__).resolve().parent]
        near = (own or frames)[-1]
        return [f"{said} ({Path(near.filename).name}, line {near.lineno})"]
    return []


def _of_neighbours(file: Path | None, error: BaseException) -> str:
    """Advice to a task file that imports a file beside it, which it does not find; empty of any other error."""
    if file is not None and isinstance(error, ImportError) and "relative import" in str(error):
        return (
            ". A task file is in no package: import the file beside it by its name alone, without a dot, and set "
            f"PYTHONPATH={shlex.quote(str(file.parent))}, on all nodes"
        )
    top = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    places = file.parents[:2] if file is not None and top else ()
    near = [folder for folder in places if (folder / f"{top}.py").is_file() or any((folder / top).glob("*.py"))]
    if not near:
        return ""
    return f". A task file does not find files beside it: set PYTHONPATH={shlex.quote(str(near[0]))}, on all nodes"


def find_in(package: str) -> None:
    """Let the parts of a package of the engine wait for whoever asks for one."""
    for kind, name, module in _registered_in(package):
        known = _parts[kind].get(name)
        if known is None or known.__module__ != module:  # a part of others of its name is refused when both are there
            _waiting[kind][name] = module


@functools.cache
def _registered_in(package: str) -> list[tuple[str, str, str]]:
    """Kind, name and module of each part of a package, from its text: so nothing that is not used is imported."""
    found = []
    for folder in map(Path, importlib.import_module(package).__path__):
        for path in sorted(folder.rglob("*.py")):
            place = path.relative_to(folder).with_suffix("").parts
            module = ".".join([package, *(place[:-1] if place[-1] == "__init__" else place)])
            found += [(kind, name, module) for kind, name in _REGISTERS.findall(path.read_text(encoding="utf-8"))]
    return found


def _load_plugins() -> list[str]:
    """Import the installed distributions that announce parts; a sentence for each that failed."""
    broken = []
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        owner = point.dist.name if point.dist else point.value
        broken += _attempt(f"plugin {point.name!r} of {owner!r} ({point.value})", point.load)
    return broken


def _import_file(path: Path) -> None:
    name = _module_name(path)
    if name in sys.modules:  # of names that several files have, those of the file that was asked for last
        for kind, part_name, part in _of_files.get(name, ()):
            _parts[kind][part_name] = part
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    before = {kind: dict(parts) for kind, parts in _parts.items()}
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _of_files[name] = [
        (kind, part_name, part)
        for kind, parts in _parts.items()
        for part_name, part in parts.items()
        if before[kind].get(part_name) is not part
    ]


def _module_name(path: Path) -> str:
    # The parent folder is part of the name: two workspaces in one process may hold files of one name.
    return f"memsweep_workspace_{zlib.crc32(str(path.parent).encode()):08x}_{path.stem}"


def is_own(part: type) -> bool:
    """Whether a registered part came with memsweep: it is the engine's, or a built-in task."""
    return source_file(part).is_relative_to(Path(__file__).resolve().parent) or _is_built_in(part)


def _is_built_in(part: type) -> bool:
    return source_file(part).is_relative_to(builtin.folder(builtin.TASKS))
