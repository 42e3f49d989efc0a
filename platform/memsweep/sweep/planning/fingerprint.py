"""Hashes of the code and of the files that decide a trial's numbers. When these change, nothing is reused.

The code of a trial is a closure (``memsweep.sweep.planning.sources.source_graph``): the engine's core, the registered
parts that its config names, and every definition that these refer to. So a new model, a docstring or a change of the
report moves no trial, and a changed operator moves the trials whose closure holds it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.config.schema.batch_loss import trains_by_convolution, trains_over_sequences, transforms_blocks
from memsweep.config.schema.training import groups_by_pattern
from memsweep.config.schema.trial import asked_of, asks_measures, mixes_models, refers_elsewhere
from memsweep.models.module.config import asks_groups, wraps
from memsweep.sweep.planning.module_conditions import (
    asks_own_settings,
    has_layer_units,
    holds_layers_of_torch,
    moves_complex,
    takes_copies,
    takes_influence,
    takes_seeds,
)
from memsweep.sweep.planning.sources.kept import Kept
from memsweep.sweep.planning.sources.source_graph import ANNOTATIONS, SourceGraph, folders_of
from memsweep.sweep.planning.sources.statements import WHOLE, Definition

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

PACKAGE = Path(__file__).resolve().parents[2]
ENGINE = PACKAGE.name
CORE: tuple[Definition, ...] = (("memsweep.trial", "run_pack"),)
"""Called by a worker for every pack."""
TRAINING: tuple[Definition, ...] = (("memsweep.trial", "train_replicas"),)
"""The part of it that gives the trained weights; the rest measures them."""
CHAIN = "memsweep.config.schema.chain"
CHAINED: tuple[Definition, ...] = (
    ("memsweep.sweep.planning.chain_values", "carried_value"),
    (CHAIN, "resolve_chain"),
)
"""Also called for a chained trial."""
EXEMPT = {
    "memsweep.errors": "holds the wording of errors",
    "memsweep.config.load.foreign": "makes sentences of what the code of others raises",
    "memsweep.outcome": "names the ways in which a trial ends; learning and stability decide which one it is",
    "memsweep.registry": "finds parts by name; the parts themselves are roots of the closure",
    "memsweep.config.core": "reads configs from plain data; every value of a config is in the identity",
    "memsweep.config.schema.canonical": "writes configs as plain data; every value of a config is in the identity",
    CHAIN: "names the predecessor of a chained trial; for a chained trial it is a root",
    "memsweep.sweep.planning": "computes identities; for a chained trial the carried value is a root",
}
"""Modules that a closure leaves out, with the modules below them, and why they change no number."""

Condition = Callable[["TrialConfig", str], bool]
CONDITIONAL: dict[str, Condition] = {
    "memsweep.config.schema.batch_loss.trains_by_convolution": lambda config, kernels: trains_by_convolution(config),
    "memsweep.config.schema.batch_loss.transforms_blocks": lambda config, kernels: (
        config.model.name == "stable_ssm" and transforms_blocks(_task(config)(config.task).horizon)
    ),
    "memsweep.config.schema.batch_loss.trains_over_sequences": lambda config, kernels: trains_over_sequences(config),
    "memsweep.config.schema.trial.asks_measures": lambda config, kernels: asks_measures(config),
    "memsweep.config.schema.trial.mixes_models": lambda config, kernels: (
        config.chain is None and asks_measures(config) and mixes_models(config.model)
    ),
    "memsweep.config.schema.training.groups_by_pattern": lambda config, kernels: groups_by_pattern(config.training),
    "memsweep.models.module.config.asks_groups": lambda config, kernels: (
        config.model.name == "module" and asks_groups(config.model)
    ),
    "memsweep.models.copies.takes_copies": lambda config, kernels: kernels != "triton" and takes_copies(config),
    "memsweep.models.copies.takes_seeds": lambda config, kernels: kernels != "triton" and takes_seeds(config),
    "memsweep.models.module.roles.carries_settings": lambda config, kernels: asks_own_settings(config),
    "memsweep.models.roles.asks_settings": lambda config, kernels: asks_own_settings(config),
    "memsweep.models.module.influence.influence_decides": lambda config, kernels: takes_influence(config),
    "memsweep.models.module.roles.holds_complex": lambda config, kernels: moves_complex(config),
    "memsweep.models.module.torch_layers.holds_torch_layers": lambda config, kernels: (
        kernels == "compiled" and holds_layers_of_torch(config)
    ),
    "memsweep.models.module.config.wraps": lambda config, kernels: (
        config.model.name == "module" and wraps(config.model)
    ),
    "memsweep.config.schema.trial.refers_elsewhere": lambda config, kernels: refers_elsewhere(config.perturbation),
    "memsweep.learning.ensemble.frozen": lambda config, kernels: hasattr(
        registry.get(registry.MODEL, config.model.name), "frozen_weights"
    ),
    "memsweep.learning.state.weights_file.holds_special_tensors": lambda config, kernels: (
        config.training.weights_file is not None
    ),
    "memsweep.learning.training.gradient_over_weight.is_beyond_torch": lambda *_: False,
    "memsweep.models.module.factory.keeps_files": lambda *_: False,
    "memsweep.learning.loss.exact": lambda config, kernels: config.has_closed_form,
    "memsweep.learning.loss.sampled": lambda config, kernels: not config.trains_in_closed_form,
    "memsweep.learning.loss.carried.CarriedLoss": lambda config, kernels: _task(config).carries_states,
    "memsweep.models.deep.fused_stack.drops": lambda config, kernels: (
        kernels == "compiled" and config.model.name == "residual_stack" and _drops(config.model)
    ),
    "memsweep.models.deep.no_encoder": lambda config, kernels: getattr(config.model, "encoder__", "") == "none",
    "memsweep.models.deep.unit.has_layer_units": lambda config, kernels: has_layer_units(config.model),
    "memsweep.stability.perturbation.complex_ball.takes_modulus": lambda config, kernels: moves_complex(config),
    "memsweep.recurrence.compiled": lambda config, kernels: bool(kernels),
    "memsweep.recurrence.gated.onednn.suits": lambda config, kernels: kernels == "compiled" and _suits_onednn(config),
    "memsweep.recurrence.triton": lambda config, kernels: kernels == "triton",
    "memsweep.rules.batched.Batched": lambda config, kernels: _is_deep(config),
}
"""Modules and definitions that run in some trials alone, and in which, by the trial and its ``kernels_of``."""


def code_fingerprint(config: TrialConfig, device: str = "cpu", *, training: bool = False) -> str:
    """A hash of the code that makes this trial's numbers on this type of device, 16 hexadecimal digits.

    Args:
        config: of the trial.
        device: type of the device.
        training: only of the code that makes its trained weights.
    """
    return _digest(code_roots(config, training=training), _Cut.of(config, device, training=training))


def code_closure(config: TrialConfig, device: str = "cpu", *, training: bool = False) -> frozenset[Definition]:
    """The definitions that make this trial's numbers, or its trained weights: what its identity is made of."""
    return _closure(code_roots(config, training=training), _Cut.of(config, device, training=training))


def kernels_of(config: TrialConfig, device: str) -> str:
    """Which code computes the trial's recurrences, or their statistics: ``compiled``, ``plain`` or ``triton``; empty
    where torch computes them in closed form on a GPU.

    The last bits of a trial depend on it.
    """
    # a deep model's response is that of its recurrences
    if device == "cuda" and config.trains_in_closed_form and not _is_deep(config):
        return ""
    import torch

    from memsweep.recurrence.layer_outputs import kernels

    return kernels(getattr(torch, config.training.dtype), device, over_time=config.model.name != "module")


def code_roots(config: TrialConfig, *, training: bool = False) -> frozenset[Definition]:
    """The definitions that a worker calls for a trial: the engine's core, its parts, and what its configs compute."""
    roots = {*(TRAINING if training else CORE), *(CHAINED if config.chain is not None else ())}
    asked = [*asked_of(config.training), *(() if training else asked_of(config.perturbation))]
    measures = {(each.kind, each.name) for each in asked}
    for part in parts(config):
        named = part.Config.kind, part.Config.name  # type: ignore[attr-defined]
        if named[0] != registry.MEASURE or named in measures:
            roots |= _definitions_of(part)
    roots |= named_code(config)
    roots |= {(type(each).__module__, type(each).__qualname__) for each in configs_in(config) if not is_of_part(each)}
    return frozenset(roots - _measuring(config)) if training else frozenset(roots)


def _measuring(config: TrialConfig) -> set[Definition]:
    """The definitions that the closure of a training leaves out: the classes of the settings by which weights are
    measured, what marks complex weights, which balls alone read, and what computes copies.
    """
    classes = {(type(each).__module__, type(each).__qualname__) for each in _in_section(config.perturbation)}
    return {("memsweep.models.module.roles", "holds_complex"), ("memsweep.models.copies", "takes_copies"), *classes}


def named_code(config: Any) -> set[Definition]:
    """The definitions that the config names besides its parts, such as a user's class."""
    roots: set[Definition] = set()
    wrapped: set[Definition] = set()
    for owner in filter(is_of_part, configs_in(config)):
        named = getattr(registry.get(owner.kind, owner.name), "code", None)
        roots |= (found := named(owner) if named is not None else set())
        wrapped |= found if getattr(owner, "wrap", False) else set()
    if roots:
        _see_new_files()
    files = {name for name, _ in GRAPH.closure(wrapped, _is_of_engine)}
    return roots | {(name, ANNOTATIONS) for name in files if _find(name) is not None}


def named_fingerprint(config: Any) -> str:
    """A hash of the code that the config names besides its parts, without the engine's, 16 hexadecimal digits."""
    return GRAPH.digest(GRAPH.closure(named_code(config), _is_of_engine), _is_of_engine)


def _is_of_engine(definition: Definition) -> bool:
    return _top(definition[0]) == ENGINE


def _see_new_files() -> None:
    """Reads files of users again where they were imported again."""
    from memsweep.models.module.factory import generation

    if _generation[-1] != generation():
        _generation.append(generation())
        folders_of.cache_clear()
        forget(*GRAPH.foreign())


_generation = [0]


def libraries(config: TrialConfig) -> dict[str, str]:
    """Versions of the installed libraries that decide this trial's numbers: the engine's, and what its parts import."""
    own = {definition for part in parts(config) for definition in _definitions_of(part)} | named_code(config)
    return dict(_libraries(frozenset(own)))


@functools.lru_cache(maxsize=256)
def _libraries(own: frozenset[Definition]) -> dict[str, str]:
    reached = GRAPH.closure(own, _is_of_engine)
    names = {"torch", "numpy", "scipy"}.union(
        *(_distributions(top) for top in GRAPH.outside(reached) | {_top(name) for name, _ in own} if not _is_local(top))
    )
    return {name: version for name in sorted(names) if (version := _version(name))}


def parts(config: Any) -> tuple[type, ...]:
    """The registered parts that a config names, at any depth, each once."""
    configs = list(configs_in(config))
    chosen = [(owner.kind, owner.name) for owner in configs if is_of_part(owner)]
    classes: list[type] = [type(owner) for owner in configs]
    by_name = [
        (kind, getattr(owner, field))
        for owner, cls in zip(configs, classes, strict=True)
        for kind, field in _named(cls)
    ]
    return tuple(dict.fromkeys(registry.get(kind, name) for kind, name in (*chosen, *by_name)))


@functools.lru_cache(maxsize=512)
def _named(cls: type) -> list[tuple[str, str]]:
    """(kind, name of the field) of the fields that hold a part's name alone, such as a learning rule's."""
    return [(kind, field.name) for field in dataclasses.fields(cls) if (kind := field.metadata.get("named"))]


@dataclass(frozen=True)
class _Cut:
    """Leaves definitions out of a closure.

    Attributes:
        prefixes: modules, or definitions as ``module.name``, that are left out, with the modules below them.
    """

    prefixes: frozenset[str]

    @classmethod
    def of(cls, config: TrialConfig, device: str, *, training: bool) -> _Cut:
        chained, kernels = config.chain is not None, kernels_of(config, device)
        exempt = (name for name in EXEMPT if not (chained and name == CHAIN))
        idle = (name for name, runs in CONDITIONAL.items() if not runs(config, kernels))
        return cls(frozenset((*exempt, *idle, *(map(".".join, _measuring(config)) if training else ()))))

    def __call__(self, definition: Definition) -> bool:
        if definition in CHAINED:  # called for a chained trial, and reached by no other
            return False
        words = ".".join(definition).split(".")
        return any(".".join(words[:length]) in self.prefixes for length in range(1, len(words) + 1))


_KEPT = 1024  # kinds of trials of one study whose code is known: a study of every task and model has some hundreds


@functools.lru_cache(maxsize=_KEPT)
def _closure(roots: frozenset[Definition], cut: _Cut) -> frozenset[Definition]:
    return GRAPH.closure(roots, cut)


@functools.lru_cache(maxsize=_KEPT)
def _digest(roots: frozenset[Definition], cut: _Cut) -> str:
    return GRAPH.digest(_closure(roots, cut), cut)


def forget(*modules: str) -> None:
    """Drops what was read of these modules, so that the next fingerprint reads their files again."""
    for name in modules:
        GRAPH.forget(name)
    for cached in (_closure, _digest, _libraries, _definitions_of):
        cached.cache_clear()


@functools.lru_cache(maxsize=256)
def _definitions_of(part: type) -> frozenset[Definition]:
    """The part's class. For a workspace's file also its helpers: the files beside it whose names begin with ``_``."""
    definitions = {(part.__module__, part.__qualname__.partition(".")[0])}
    file = registry.source_file(part)
    if "." not in part.__module__ and _top(part.__module__) != ENGINE:
        for helper in sorted(file.parent.glob("_*.py")):
            _FILES[f"{part.__module__}.{helper.stem}"] = helper
            definitions.add((f"{part.__module__}.{helper.stem}", WHOLE))
    return frozenset(definitions)


_FILES: dict[str, Path] = {}  # modules that no import finds by name: helpers of a workspace's tasks
_LIBRARIES = tuple(
    {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib", "stdlib", "platstdlib")}
)


def _find(module: str) -> Path | None:
    """The file of a module that is memsweep's, a registered part's own, or not installed."""
    top = _top(module)
    if top == ENGINE:
        return _engine_file(module)
    if module in _FILES:
        return _FILES[module]
    if not _is_local(top):
        return None
    loaded = sys.modules.get(top)
    if loaded is not None and not hasattr(loaded, "__path__"):  # a file, perhaps loaded by its path
        return Path(loaded.__file__).resolve() if module == top and loaded.__file__ else None
    return next((path for folder in folders_of(top) if (path := _file_in(folder, module))), None)


@functools.cache
def _engine_file(module: str) -> Path | None:
    return _file_in(PACKAGE.parent, module)


def _file_in(folder: Path, module: str) -> Path | None:
    base = folder.joinpath(*module.split("."))
    candidates = (
        base / "__init__.py",
        base.with_name(f"{base.name}.py"),
        *sorted(base.parent.glob(f"{base.name}.*.so")),
    )
    return next((path for path in candidates if path.is_file()), None)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _is_local(top: str) -> bool:
    """Whether a module is no installed library, or one that a registered part comes from."""
    if any(top == _top(part.__module__) for part in registry.loaded()):
        return True
    folders = folders_of(top)
    return bool(folders) and not any(map(_is_installed, folders))


def _is_installed(folder: Path) -> bool:
    return any(folder.is_relative_to(library) for library in _LIBRARIES) or bool(
        {"site-packages", "dist-packages"}.intersection(folder.parts)
    )


GRAPH = SourceGraph(_find, lambda module: _top(module) != ENGINE, Kept(PACKAGE))


def _task(config: TrialConfig) -> Any:
    return registry.get(registry.TASK, config.task.name)


def _is_deep(config: TrialConfig) -> bool:
    from memsweep.models.deep.unit import is_deep

    return is_deep(config.model)


def _drops(model: Any) -> bool:
    from memsweep.models.deep.fused_stack import drops

    return drops(model)


def _suits_onednn(config: TrialConfig) -> bool:
    import torch

    from memsweep.recurrence.gated.onednn import suits

    dtype = getattr(torch, config.training.dtype)
    if holds_layers_of_torch(config):  # the width of a layer in it is any
        return dtype is torch.float32
    return _is_deep(config) and suits(dtype, getattr(config.model, "width", 0))


@functools.lru_cache(maxsize=16)
def configs_in(config: Any) -> tuple[Any, ...]:
    """Every config dataclass in a config, at any depth, the config itself first. Asked a dozen times for a trial."""
    own = (getattr(config, field.name) for field in dataclasses.fields(config))
    return (config, *(each for value in own for each in (_in_section(value) if _is_config(value) else _walk(value))))


@functools.lru_cache(maxsize=1024)
def _in_section(section: Any) -> tuple[Any, ...]:
    """The same of a section, which most trials of a grid share."""
    return tuple(_walk(section))


def _walk(value: Any) -> Iterator[Any]:
    if _is_config(value):
        yield value
        for field in dataclasses.fields(value):
            yield from _walk(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield from _walk(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _walk(item)


def _is_config(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def is_of_part(config: Any) -> bool:
    """Whether a config is that of a registered part."""
    return getattr(config, "kind", None) in registry.KINDS


@functools.cache
def _distributions(top: str) -> frozenset[str]:
    """The installed distributions that a top-level module comes from."""
    if _version(top):
        return frozenset({top})
    return frozenset(importlib.metadata.packages_distributions().get(top, ()))


@functools.cache
def _version(name: str) -> str:
    """The version of an installed distribution; empty where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
