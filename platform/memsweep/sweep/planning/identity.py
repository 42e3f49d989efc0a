"""A trial's identity: a hash of everything that decides its numbers.

That is the whole config without cosmetic keys, the code that makes the numbers (models, recurrences, learning,
perturbations, the task's own file), the files that the task reads, the versions of torch, numpy, scipy and of what the
task or the model imports, the type of device, in how many parts the data of a step are summed, and, for a model that
runs over sequences, whether compiled kernels compute it or torch does. Two studies that share a trial share its
result; changed code shares nothing.

The second half of an identity is that of the training: what decides the trained weights, and nothing of how they are
measured. Trials of equal second halves have equal weights, so that one of them is trained and the others are measured.

Identities were fixed once: what was added to the engine later, and a trial does not use, is in none. That is a field
at its default here, and a method or a field that no code of the trial reaches in ``members``. A changed default of
such a field is changed code: it moves the trials that read the field.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.config.core.reflect import default, key_of, keys, owner_of, value_of
from memsweep.config.schema.canonical import LEAVES
from memsweep.config.schema.chain import predecessor
from memsweep.errors import RegistryError
from memsweep.sweep.planning.fingerprint import code_fingerprint, configs_in, is_of_part, kernels_of, libraries
from memsweep.sweep.planning.sources.members import listed

if TYPE_CHECKING:
    from memsweep.config.schema.study import ResourcesConfig
    from memsweep.config.schema.trial import TrialConfig

_HALF = 16


@dataclass(frozen=True)
class Arithmetic:
    """The properties of a place of computation that decide a trial's last bits.

    Attributes:
        device: type of the device: ``cpu`` or ``cuda``.
        shards: parts in which the data of a training step are computed and summed.
    """

    device: str = "cpu"
    shards: int = 1

    @classmethod
    def of(cls, resources: ResourcesConfig) -> Arithmetic:
        """That of packs with these resources."""
        return cls(resources.device, resources.shards)


ON_CPU = Arithmetic()


def identity(config: TrialConfig, arithmetic: Arithmetic = ON_CPU) -> str:
    """The identity of a trial, 32 hexadecimal digits: 16 of the whole trial, then 16 of its training."""
    return identity_from(config, identity_of(config, arithmetic), training_code(config, arithmetic))


def identity_from(config: TrialConfig, place: Mapping[str, Any], training: str) -> str:
    """The identity that follows from these parts, which another machine may have told: nothing of the code is read.

    Args:
        config: of the trial.
        place: the parts beside it, as of ``identity_of``.
        training: as of ``training_code``.
    """
    whole = {"config": identifying(config), **place}
    if not training:
        return _hash(whole) + _hash({"training": whole})
    deciding = {name: part for name, part in whole["config"].items() if name != "perturbation"}
    return _hash(whole) + _hash({"config": deciding, **place, "code": training})


def training_code(config: TrialConfig, arithmetic: Arithmetic = ON_CPU) -> str:
    """A hash of the code that makes a trial's trained weights.

    Empty for a trial that trains by what was measured on the one before: all of its code decides them.
    """
    if config.chain is not None and config.chain.carry != "validation_loss":
        return ""
    return _code(config, arithmetic, training=True)


def training_of(identity: str) -> str:
    """The part of a trial's identity that names its training."""
    return identity[_HALF:]


def _hash(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:_HALF]


def identity_of(config: TrialConfig, arithmetic: Arithmetic = ON_CPU) -> dict[str, Any]:
    """The parts of an identity beside the config: code, data, versions, device, shards, kernels.

    A chained trial takes a number from those before it, whose parts may be others than its own: theirs count, too.
    """
    trials = [config, *_before(config)]
    return {
        "code": _code(config, arithmetic),
        "data": _together(data_fingerprint(trial) for trial in trials),
        "versions": {name: version for trial in trials for name, version in libraries(trial).items()},
        "device": arithmetic.device,
        "shards": arithmetic.shards,
        "kernels": _together(kernels_of(trial, arithmetic.device) for trial in trials),
    }


def _code(config: TrialConfig, arithmetic: Arithmetic, *, training: bool = False) -> str:
    """The code of a trial and of those before it in its chain, or the part of it that decides the trained weights."""
    trials = [config, *_before(config)]
    return _together(code_fingerprint(trial, arithmetic.device, training=training) for trial in trials)


def _together(words: Iterable[str]) -> str:
    return "+".join(word for word in dict.fromkeys(words) if word)


def identifying(config: Any) -> dict[str, Any]:
    """The canonical form of a config without cosmetic fields, and without later ones at their defaults, at any depth.

    Equal numbers are spelt alike.

    Raises:
        RegistryError: two fields of a config have one key, so that one of them would not count.
    """
    cls: type = type(config)
    first, fields = _counting(cls, tuple(keys(cls)))
    data: dict[str, Any] = {first: config.name if first == "name" else cls.__qualname__}
    for key, field, left_out in fields:
        value = value_of(config, field)
        if value != left_out:
            data[key] = _plain(value)
    return data


@functools.lru_cache(maxsize=512)
def _counting(cls: type, written: tuple[str, ...]) -> tuple[str, list[tuple[str, dataclasses.Field[Any], Any]]]:
    """The key of what a config is called; and key, field and the value that is left out, of each field that counts.

    Args:
        cls: of the config.
        written: its keys, which grow with the registered parts where it is open for them.
    """
    first = "name" if getattr(cls, "kind", None) in registry.KINDS else "class"
    fields = dataclasses.fields(cls)
    if len({first, *map(key_of, fields)}) <= len(fields):
        raise RegistryError(
            f"two fields of {cls.__module__}.{cls.__qualname__} have one key, or one is called {first}: rename it."
        )
    counting = ((key, keys(cls)[key]) for key in written if not keys(cls)[key].metadata.get("cosmetic"))
    return first, [(key, field, _left_out(owner_of(cls, key), field)) for key, field in counting]


def without_later(data: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """The plain data of a config without later fields at their defaults, at any depth, as of ``identifying``."""
    kept = dict(data)
    for key, field in keys(type(config)).items():
        value = value_of(config, field)
        if value == _left_out(owner_of(type(config), key), field):
            kept.pop(key, None)
        elif key in kept and dataclasses.is_dataclass(value):
            kept[key] = without_later(kept[key], value)
    return kept


def _left_out(cls: type, field: dataclasses.Field[Any]) -> Any:
    """The value with which a field is in no identity: the default of a field that was added to a class of the engine.

    A value that no field has, for a field that identities have held from the first.
    """
    if field.metadata.get("added"):
        return None
    owners = [each for each in cls.__mro__ if field.name in vars(each).get("__annotations__", {})]
    is_new = all(field.name not in listed().get(each.__qualname__, ()) for each in owners)
    is_of_engine = all(each.__module__.partition(".")[0] == "memsweep" for each in owners)
    return default(field) if is_new and is_of_engine else dataclasses.MISSING


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if type(value) in LEAVES:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return identifying(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _before(config: TrialConfig) -> list[TrialConfig]:
    """The trials before this one in its chain."""
    found: list[TrialConfig] = []
    while (before := predecessor(config)) is not None:
        found.append(before)
        config = before
    return found


def pack_identity(members: Iterable[str]) -> str:
    """The identity of a pack: its members', in order."""
    return hashlib.sha256("\n".join(members).encode()).hexdigest()[: 2 * _HALF]


def data_fingerprint(config: Any) -> str:
    """A hash of the files that the config's parts read, 16 hexadecimal digits; empty where they read none.

    A part that reads files says which: ``data_files(config)``, a class method, gives their paths in a fixed order. Of a
    folder in their place, the names and sizes of the files in it are hashed.
    """
    paths = [path for _, path in data_files(config)]
    training = getattr(config, "training", None)
    if training is not None and training.weights_file is not None:
        paths.append(training.weights_file)
    return _hash_data(tuple((path, *_changed(path)) for path in paths)) if paths else ""


def data_files(config: Any) -> list[tuple[Any, Path]]:
    """The files that the parts of a config read, each with the part's own config."""
    owners = [(owner, registry.get(owner.kind, owner.name)) for owner in filter(is_of_part, configs_in(config))]
    return [
        (owner, Path(path)) for owner, part in owners if hasattr(part, "data_files") for path in part.data_files(owner)
    ]


def _changed(path: Path) -> tuple[int, int]:
    """A mark that changes when a file is written anew; of absent files the task says what is missing."""
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
