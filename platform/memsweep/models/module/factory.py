"""Makes a user's ``nn.Module`` from its import path, such as ``my_nets:MinGRU``.

The name before the colon is that of a module as Python would import it, from the folders of ``registry.folders()`` (the
workspace, its ``search_spaces/``) or from the installed packages; or it is the path of a file (``nets/gru.py``). The
name behind the colon is a class, or any callable that gives an ``nn.Module``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from memsweep import registry
from memsweep.config.load.foreign import foreign_code
from memsweep.errors import ModuleError, did_you_mean, one_of
from memsweep.models.module.config import ArgumentNames
from memsweep.models.module.in_memory import is_gone, told_gone
from memsweep.models.roles import Signature
from memsweep.models.training_mode import seeded
from memsweep.registry import files_are_held

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_WIDTHS = frozenset({"d_model", "dim", "features", "hidden", "hidden_dim", "hidden_size", "n_hidden", "size", "units"})
"""Names that modules have for their width, besides those with ``hid`` in them."""


USUAL = ArgumentNames()


PROBE_STEPS = 64
"""Steps of the sequences on which a module is tried: roles and statistics do not depend on more."""


@dataclass(frozen=True)
class Factory:
    """A callable that makes modules.

    Attributes:
        target: as it was written, ``my_nets:MinGRU``.
        make: the callable.
        module: the name of its Python module.
        own: it comes from a file of a user, not from an installed package.
        file: the file that holds it; None for code without one.
    """

    target: str
    make: Callable[..., Any]
    module: str
    file: Path | None
    own: bool

    def build(
        self,
        signature: Signature,
        width: int | None,
        arguments: Mapping[str, Any] | None = None,
        names: ArgumentNames = USUAL,
        seed: int = 0,
    ) -> nn.Module:
        """Calls the factory with torch, numpy and Python seeded; their generators are as before afterwards.

        Args:
            signature: gives inputs, outputs and horizon, which are passed where the callable has such an argument.
            width: likewise; it must have such an argument, unless ``names.width`` is None or the width is None.
            arguments: further arguments by name.
            names: the callable's own names of the sizes. A name that is not the usual one must exist.
            seed: of the initial weights, which are drawn in torch's default dtype, as in a script.

        Raises:
            ModuleError: the arguments do not fit, the callable raised, or it gave no ``nn.Module``.
        """
        given = _arguments(self, {**asdict(signature), "width": width}, dict(arguments or {}), names)
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items())

        def sentence(error: str) -> str:
            return (
                f"{self.target}({shown}) failed: {error}. Correct its code, or the arguments that the study gives it "
                "(model.arguments)."
            )

        with seeded(seed), foreign_code(sentence, self.file):
            module = self.make(**given)
        if not isinstance(module, nn.Module):
            raise ModuleError(
                f"{self.target}({shown}) gave {_kind(module)}, which is no torch.nn.Module. The name behind the colon "
                "must be a class of modules, or a function that returns a module."
            )
        return module


def resolve(target: str, folders: Sequence[Path] | None = None) -> Factory:
    """Imports the callable that ``package.module:name`` or ``folder/file.py:name`` names.

    A file that changed since it was imported is imported again, with all files of the folders.

    Args:
        target: as a study writes it.
        folders: are searched before the installed packages; None: those of ``registry.folders()``.

    Raises:
        ModuleError: there is no such file or name, the file cannot be imported, or the name is not callable.
    """
    place, colon, name = target.partition(":")
    if not colon or not place or not name:
        raise ModuleError(
            f"{target!r} names no factory. Write the module, a colon and the name of the class or function: "
            "'my_nets:MinGRU' for the class MinGRU in my_nets.py, or 'nets/gru.py:MinGRU' for a file in a folder."
        )
    searched = [folder.resolve() for folder in (registry.folders() if folders is None else folders)]
    module = _import(target, place, searched)
    make: Any = module
    for part in name.split("."):
        if not hasattr(make, part):
            own = [key for key, value in vars(make).items() if callable(value) and not key.startswith("_")]
            raise ModuleError(
                told_gone(target)
                if is_gone(target)
                else f"{target!r}: {_where(module)} has no {part!r}.{did_you_mean(part, own)} What can be called "
                f"there: {one_of(own)}."
            )
        make = getattr(make, part)
    if not callable(make):
        raise ModuleError(f"{target!r} is {_kind(make)}, not a class or function that gives a torch.nn.Module.")
    file = getattr(module, "__file__", None)
    return Factory(target, make, module.__name__, Path(file).resolve() if file else None, module.__name__ in _loaded)


def probe_inputs(signature: Signature, tokens: bool, batch: int = 2, dtype: torch.dtype | None = None) -> Tensor:
    """Inputs to try a module with: normal numbers ``[B, T, I]``, or ids ``[B, T]`` of 0 ... I-1; always the same."""
    generator = torch.Generator().manual_seed(0)
    shape = (batch, signature.horizon)
    if tokens:
        return torch.randint(signature.inputs, shape, generator=generator)
    return torch.randn(*shape, signature.inputs, generator=generator, dtype=dtype or torch.get_default_dtype())


def looked_at(target: str, file: Path | None) -> AbstractContextManager[None]:
    """The guard of everything that a module's class may define: hooks, buffers, properties, derivatives."""
    return foreign_code(lambda error: f"{target} failed when it was looked at: {error}. Correct its code.", file)


def to_dtype(module: nn.Module, dtype: torch.dtype | None, device: torch.device | str | None = None) -> None:
    """``nn.Module.to`` in place, but complex tensors stay complex."""
    for owner in module.modules():
        for tensor in (*owner.parameters(recurse=False), *owner.buffers(recurse=False)):
            kind = dtype.to_complex() if dtype is not None and tensor.is_complex() else dtype
            moves = tensor.is_floating_point() or tensor.is_complex()
            tensor.data = tensor.data.to(device, kind if moves else None)


def outputs_of(answer: Any) -> Any:
    """A module's outputs, where it gives them with its states: ``(outputs, states)``, as torch's own layers do."""
    with_states = isinstance(answer, tuple) and answer and isinstance(answer[0], Tensor)
    return answer[0] if with_states else answer


def checked_outputs(target: str, module: nn.Module, inputs: Tensor, outputs: int) -> Tensor:
    """The outputs of a module, ``[B, T, O]``.

    Args:
        target: its name, for messages.
        module, inputs: ``[B, T, I]`` numbers, or ``[B, T]`` ids.
        outputs: O.

    Raises:
        ModuleError: the module raised, or gave anything but a tensor of that shape, alone or first in a tuple.
    """
    wanted = (*inputs.shape[:2], outputs)
    mode = " in training" if module.training else ""

    def sentence(error: str) -> str:
        kind = "numbers" if inputs.is_floating_point() else "ids"
        return (
            f"{target} failed{mode} on {kind} of shape {list(inputs.shape)}: {error}. A module must read [batch, time, "
            "inputs], or [batch, time] of ids where the study says model.tokens: true."
        )

    with foreign_code(sentence):
        result = outputs_of(module(inputs))
    if not isinstance(result, Tensor):
        raise ModuleError(
            f"{target} gave {_kind(result)}{mode} for inputs of shape {list(inputs.shape)}, not one tensor. A module "
            f"must give [batch, time, outputs], here {list(wanted)}, or a tuple that begins with them: wrap it in a "
            "module that returns its outputs."
        )
    if tuple(result.shape) != wanted:
        raise ModuleError(
            f"{target} gave outputs of shape {list(result.shape)}{mode} for inputs of shape {list(inputs.shape)}, not "
            f"{list(wanted)} ([batch, time, outputs]). {_shape_advice(tuple(result.shape), wanted)}"
        )
    return result


def _arguments(
    factory: Factory, sizes: Mapping[str, int | None], given: dict[str, Any], names: ArgumentNames
) -> dict[str, Any]:
    """The arguments of a factory's call: the sizes that it takes, and the given arguments."""
    try:
        parameters = dict(inspect.signature(factory.make).parameters)
    except (
        TypeError,
        ValueError,
    ):  # code without a signature gets all declared sizes and arguments, and raises what is wrong
        parameters = {}
    kinds = {parameter.kind for parameter in parameters.values()}
    takes_any = not parameters or inspect.Parameter.VAR_KEYWORD in kinds
    known = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    ]
    result: dict[str, Any] = {}
    for size, name in asdict(names).items():
        if name is None or sizes[size] is None:
            continue
        declared = name != getattr(USUAL, size)
        if name in given:
            raise ModuleError(
                f"the argument {name!r} of {factory.target} takes the {size} of the trial ({sizes[size]}), and "
                f"model.arguments gives it {given[name]!r}: leave it out there."
            )
        if name in known or (declared and takes_any):
            result[name] = sizes[size]
        elif declared:
            raise ModuleError(
                f"model.{size}_argument is {name!r}, but {factory.target} has no argument of that name."
                f"{did_you_mean(name, known)} Its arguments: {one_of(known)}."
            )
        elif size == "width":
            raise ModuleError(" ".join(_without_width(factory.target, parameters, known, {*result, *given})))
    for name, value in given.items():
        if name not in known and not takes_any:
            raise ModuleError(
                f"{factory.target} has no argument {name!r}, which model.arguments gives.{did_you_mean(name, known)} "
                f"Its arguments: {one_of(known)}."
            )
        result[name] = value
    missing = [name for name in known if name not in result and parameters[name].default is inspect.Parameter.empty]
    if missing:
        raise ModuleError(f"{factory.target} {_needs(missing)}")
    return result


def _without_width(
    target: str, parameters: Mapping[str, inspect.Parameter], known: Sequence[str], given: Collection[str]
) -> Iterator[str]:
    """The problems of a factory that has no argument ``width``, a sentence each; and what else it lacks.

    Args:
        target: as it was written.
        parameters: of the callable.
        known: the names among them that an argument can be given by.
        given: the names of the arguments that get a value.
    """
    if known:
        yield f"{target} has no argument 'width'. Its arguments: {one_of(known)}. Say which of them sets its size"
    else:
        yield f"{target} declares no argument by name. Say which one sets its size"
    likely = next(iter(sorted(filter(_is_width, known), key=lambda name: name not in _WIDTHS)), "")
    likely = likely or (known[-1] if known else "hidden_size")
    yield f"(model.width_argument: {likely}, for example), or that none does (model.width_argument: null)."
    empty = inspect.Parameter.empty
    if missing := [name for name in known if name not in given and parameters[name].default is empty]:
        yield f"It {_needs(missing)}"


def _needs(missing: Sequence[str]) -> str:
    """``needs the argument layers: ...``"""
    one, first = len(missing) == 1, missing[0]
    size = "width" if _is_width(first) else "outputs" if "out" in first and "drop" not in first else "inputs"
    return (
        f"needs the argument{'' if one else 's'} {', '.join(missing)}: give {'it' if one else 'them'} under "
        f"model.arguments, or say which size it takes, such as model.{size}_argument: {first}."
    )


def _is_width(name: str) -> bool:
    return name in _WIDTHS or ("hid" in name and "layer" not in name)


def _import(target: str, place: str, folders: Sequence[Path]) -> ModuleType:
    if place.endswith(".py") or "/" in place:
        file = next((path for folder in [Path(), *folders] if (path := (folder / place)).is_file()), None)
        if file is None:
            raise ModuleError(f"{target!r}: there is no file {place}{_searched(folders)}.")
        return _import_from(file.parent.resolve(), file.stem, target)  # a link keeps its own name
    top = place.partition(".")[0]
    folder = next((folder for folder in folders if _holds(folder, top)), None)
    if folder is not None:
        return _import_from(folder, place, target)
    try:
        absent = importlib.util.find_spec(top) is None
    except (ImportError, ValueError):
        absent = True
    if absent:
        near = [path.stem for folder in folders for path in folder.glob("*.py")]
        raise ModuleError(
            told_gone(target)
            if is_gone(target)
            else f"{target!r}: there is no {top}.py or {top}/{_searched(folders)}, and no installed package of that "
            f"name.{did_you_mean(top, near)}"
        )
    return _attempt(place, target)


def _import_from(folder: Path, name: str, target: str) -> ModuleType:
    """A module of a folder, under its plain name, with the folder on Python's path, as for a script that lies in it."""
    top = name.partition(".")[0]
    _drop_stale(folder)
    loaded = sys.modules.get(top)
    if loaded is not None and top not in _loaded:
        file = getattr(loaded, "__file__", None)
        if file is None or not _lies_in(Path(file), folder, top):
            raise ModuleError(
                f"{target!r}: {folder / top} has the name of the module {top} ({file or 'built in'}), which is in use. "
                "Give the file another name."
            )
    before, keeps_none = set(sys.modules), sys.dont_write_bytecode
    if str(folder) in sys.path:  # it stays there: a function of the file may import another one when it is called
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    # Python compares cached bytecode by second and length: a quick edit of equal length would be missed
    sys.dont_write_bytecode = True
    try:
        return _attempt(name, target)
    finally:
        sys.dont_write_bytecode = keeps_none
        sys.path.remove(str(folder))
        sys.path.append(str(folder))
        for each in set(sys.modules) - before:
            file = getattr(sys.modules[each], "__file__", None)
            if file and not _is_installed(file) and _lies_in(Path(file), folder, each.partition(".")[0]):
                _loaded[each] = (folder, Path(file), _stamp(Path(file)))


_loaded: dict[str, tuple[Path, Path, tuple[int, int]]] = {}
"""By name, the modules that were imported from users' folders: folder and file, with its time and size."""


_generation = 0


def generation() -> int:
    """Grows whenever files of users were forgotten: what was read of them before may have changed."""
    return _generation


def keeps_files(folder: Path) -> bool:
    """Whether a trial is computed, which keeps the code that it began with, and all imported files are of a folder."""
    return files_are_held() and all(home == folder for home, _, _ in _loaded.values())


def _drop_stale(folder: Path) -> None:
    """Forgets all imported files of users if one of them changed or lies elsewhere: they may hold parts of another."""
    global _generation
    if keeps_files(folder):
        return
    if any(home != folder or _stamp(path) != stamp for home, path, stamp in _loaded.values()):
        _generation += 1
        for name in _loaded:
            sys.modules.pop(name, None)
        _loaded.clear()


def _lies_in(file: Path, folder: Path, top: str) -> bool:
    """Whether the file of a loaded module is in a folder, itself or by a link to its package or to it."""
    real = file.resolve()
    places = (folder, (folder / top).resolve(), (folder / f"{top}.py").resolve())
    return file.is_relative_to(folder) or any(map(real.is_relative_to, places))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        about = path.stat()
    except OSError:
        return -1, -1
    return about.st_mtime_ns, about.st_size


def _attempt(name: str, target: str) -> ModuleType:
    with foreign_code(lambda error: f"{target!r}: the import of {name} failed: {error}."):
        return importlib.import_module(name)


def _holds(folder: Path, top: str) -> bool:
    return (folder / f"{top}.py").is_file() or (folder / top / "__init__.py").is_file() or _has_python(folder / top)


def _has_python(folder: Path) -> bool:
    """Whether a folder without ``__init__.py`` holds Python files: Python imports it, too."""
    return folder.is_dir() and any(folder.glob("*.py"))


def _is_installed(file: str) -> bool:
    return bool(_INSTALLED.intersection(Path(file).parts)) or file.startswith("<")


def _searched(folders: Sequence[Path]) -> str:
    return f" in {' or '.join(map(str, dict.fromkeys(folders)))}" if folders else ""


def _where(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or f"the module {module.__name__}")


def _kind(value: object) -> str:
    """A value in words: its type, with the elements of a tuple."""
    if value is None:
        return "None"
    name = type(value).__name__
    inside = f" ({', '.join(type(each).__name__ for each in value[:4])})" if isinstance(value, tuple | list) else ""
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}{inside}"


def _shape_advice(got: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    if len(got) == 3 and got[0] == wanted[1] and got[1] == wanted[0]:
        return "Time comes first: use batch_first=True, or transpose the outputs."
    if got[:2] == wanted[:2] and len(got) == 3:
        return (
            f"The last dimension must be the outputs of the task ({wanted[2]}): give the module a readout of that "
            "size, from an argument 'outputs' (or model.outputs_argument)."
        )
    if len(got) == 2:
        return "Give an output at each step, not at the last one alone: the task reads the steps that it needs."
    return "See the page 'Bring your own model'."
