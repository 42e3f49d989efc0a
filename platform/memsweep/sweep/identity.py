"""A trial's identity: a hash of everything that decides its numbers.

That is the whole config without cosmetic keys, the code that makes the numbers (models, recurrences, learning,
perturbations, the task's own file), the versions of torch and numpy, the type of device, and, for a model that runs
over sequences, whether compiled kernels compute it or torch does. Two studies that share a trial share its result;
changed code shares nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.config.canonical import to_dict
from memsweep.config.reflect import key_of

if TYPE_CHECKING:
    from memsweep.config.schema import TrialConfig

_LENGTH = 32
_PACKAGE = Path(__file__).resolve().parents[1]
_NUMBER_CODE = (
    *("models/*.py", "recurrence/*.py", "learning/*.py", "stability/*.py"),
    *("recurrence/compiled/*.py", "recurrence/compiled/*.cpp", "recurrence/compiled/*.h"),
    *("streams.py", "trial.py", "config/schema.py", "config/chain.py"),
)
_READS_ONLY = frozenset({"verdict.py", "slopes.py", "radius.py", "evidence.py"})
"""Files of stability/ that read results: to change a verdict's rule does not change what was measured."""


def identity(config: TrialConfig, device: str = "cpu") -> str:
    """The identity of a trial, 32 hexadecimal digits.

    Args:
        config: the trial.
        device: type of the device that makes the numbers; another type gives other roundings.
    """
    content = {
        "config": identifying(config),
        "code": code_fingerprint(config),
        "versions": _versions(),
        "device": device,
        "kernels": _kernels(config),
    }
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


@functools.cache
def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("torch", "numpy")}


def _kernels(config: TrialConfig) -> str:
    """What computes the trial's recurrence, where there is a choice: its last bits depend on it."""
    if config.has_closed_form:
        return ""
    import torch

    from memsweep.recurrence.layer import kernels

    return kernels(getattr(torch, config.training.dtype))


def identifying(config: Any) -> dict[str, Any]:
    """The canonical form of a config without its cosmetic fields."""
    data = to_dict(config)
    for field in dataclasses.fields(config):
        key = key_of(field)
        value = getattr(config, field.name)
        if field.metadata.get("cosmetic"):
            del data[key]
        elif dataclasses.is_dataclass(value):
            data[key] = identifying(value)
    return data


def code_fingerprint(config: TrialConfig) -> str:
    """A hash of the source files that make this trial's numbers, 16 hexadecimal digits.

    Beside the engine: the task's and the model's own code, and that of every registered part in the model's config.
    """
    parts = [registry.get(registry.TASK, config.task.name), registry.get(registry.MODEL, config.model.name)]
    values = (getattr(config.model, field.name) for field in dataclasses.fields(config.model))
    parts += [registry.get(v.kind, v.name) for v in values if getattr(v, "kind", None) in registry.KINDS]
    own = set().union(*(_own_files(part) for part in parts))
    return _hash_files(frozenset(own | set(_engine_files())))


@functools.cache
def _own_files(part: type) -> frozenset[Path]:
    """The files that define a part: those of its class and of the classes it inherits from.

    In a package, all of its Python files; beside a single file such as a workspace's task, its helpers, by
    convention the files whose names begin with an underscore.
    """
    found: set[Path] = set()
    for base in part.__mro__:
        top = base.__module__.partition(".")[0]
        if top in ("memsweep", "torch", "abc", "builtins"):
            continue
        file = registry.source_file(base)
        package = getattr(sys.modules.get(top), "__path__", None) if "." in base.__module__ else None
        found |= {file, *(file.parent.glob("_*.py"))}
        for folder in package or ():
            found |= set(Path(folder).resolve().rglob("*.py"))
    return frozenset(found)


@functools.cache
def _engine_files() -> tuple[Path, ...]:
    return tuple(sorted(path for glob in _NUMBER_CODE for path in _PACKAGE.glob(glob) if path.name not in _READS_ONLY))


@functools.lru_cache(maxsize=256)
def _hash_files(files: frozenset[Path]) -> str:
    # by name and content, not by place: the same code on another machine has the same fingerprint
    contents = sorted((path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files)
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()[:16]


def pack_identity(members: Iterable[str]) -> str:
    """The identity of a pack: its members', in order."""
    return hashlib.sha256("\n".join(members).encode()).hexdigest()[:_LENGTH]
