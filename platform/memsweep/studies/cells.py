"""Callables that Python gives in the place of a factory's name, such as a class of a notebook's cell."""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import inspect
import io
import os
import pickle
import re
import sys
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import packages_distributions, version
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from memsweep.errors import ModuleError
from memsweep.models.module.factory import resolve
from memsweep.models.module.in_memory import put
from memsweep.sweep.planning.fingerprint import GRAPH
from memsweep.sweep.planning.sources.statements import WHOLE

_BUILT_IN = frozenset({*sys.stdlib_module_names, "torch", "numpy", "scipy"})
"""Modules that count by Python's version, or in every identity."""
_CACHE = type(functools.lru_cache(int))
"""Of a function behind ``functools.lru_cache``."""
_NO_CODE = frozenset({"__dict__", "__weakref__", "__module__", "__doc__", "__annotations__", "__qualname__"})
_NO_CODE |= {"__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl"}


def name_of_callable(make: Callable[..., Any]) -> str:
    """The name by which a config names a class or function: its import path, or ``in memory:Net@<hash of its code>``.

    Raises:
        ModuleError: it is a module and not what makes one, or workers could not have it.
    """
    if isinstance(make, nn.Module):
        kind = type(make).__name__
        raise ModuleError(
            f"model.factory is a module (a {kind}), and each seed needs a module of its own: give what makes it, the "
            f"class {kind} with model.arguments, or a function. memsweep.measure and memsweep.audit take the module."
        )
    if path := _import_path(make):
        return path
    shown = str(getattr(getattr(make, "func", make), "__name__", type(make).__name__))  # of a partial, what it calls
    home = sys.modules.get(str(getattr(make, "__module__", "")))
    if home is not None and home.__name__ != "__main__" and getattr(home, shown, None) is make:
        raise ModuleError(
            f"{shown} of {getattr(home, '__file__', None) or home.__name__} is neither installed nor in the "
            "workspace, so that no worker could import it. Give workspace=, the folder of the file; or the file by "
            "its path, 'folder/my_nets.py:Net'."
        )
    word = re.sub(r"\W", "", shown)
    return put(f"{word}@{digest(make)}", make)


def _import_path(make: Any) -> str:
    """``my_nets:Net`` where that is this very callable; empty where it has none, as in a notebook."""
    module, name = getattr(make, "__module__", None), getattr(make, "__qualname__", None)
    if not module or not name or module == "__main__" or "<" in name:
        return ""
    try:
        path = f"{module}:{name}"
        return path if resolve(path).make is make else ""
    except ModuleError:
        return ""


def digest(make: Any) -> str:
    """A hash of the compiled code of a callable and of all that it uses, 16 hexadecimal digits.

    Followed are classes with their bases, functions, and the globals and closures that they read, where they stand
    beside the callable. Files of the workspace count whole, installed packages by their version, and data by value.
    """
    told = hashlib.sha256(f"{sys.version_info[:2]}\n".encode())
    for word in _Walk(getattr(make, "__module__", "")).words(make):
        told.update(f"{word}\n".encode("utf-8", errors="surrogatepass"))
    return told.hexdigest()[:16]


class _Walk:
    """Goes through all that a callable uses, each object once.

    Args:
        home: the name of the module beside whose definitions it goes.
    """

    def __init__(self, home: str) -> None:
        self._home = home
        self._seen: dict[
            int, tuple[int, Any]
        ] = {}  # by id, the place in the walk; it holds the object, so no id returns

    def words(self, value: Any) -> Iterator[str]:
        """The words that tell a value from others."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            yield repr(value)
        elif id(value) in self._seen:
            yield f"again {self._seen[id(value)][0]}"
        else:
            self._seen[id(value)] = len(self._seen), value
            yield from self._words_of_object(value)

    def _words_of_object(self, value: Any) -> Iterator[str]:
        if isinstance(value, ModuleType):
            yield from _words_of_module(value.__name__)
        elif isinstance(value, type | FunctionType | BuiltinFunctionType) and not self._stands_beside(value):
            yield f"{value.__module__}:{value.__qualname__}"
            yield from _words_of_module(str(value.__module__))
        elif isinstance(value, type):
            yield from self._words_of_class(value)
        elif isinstance(value, FunctionType):
            yield from self._words_of_function(value)
        elif isinstance(value, CodeType):
            yield f"{value.co_code!r} {value.co_names} {value.co_varnames} {value.co_freevars} {value.co_cellvars}"
            yield from _form(value)
            yield from self.words(value.co_consts)
        else:
            yield from self._words_of_data(value)

    def _stands_beside(self, value: Any) -> bool:
        module = value.__module__
        return module in (None, self._home, "__main__") or not hasattr(sys.modules.get(module), "__name__")

    def _words_of_class(self, owner: type) -> Iterator[str]:
        yield f"class {owner.__name__}"
        for base in owner.__bases__:
            yield from self.words(base)
        for name, value in sorted(vars(owner).items()):
            if name not in _NO_CODE:
                yield name
                yield from self.words(_by_name(value) if name == "__dataclass_fields__" else value)

    def _words_of_function(self, function: FunctionType) -> Iterator[str]:
        yield f"function {function.__name__}"
        yield from self.words([function.__code__, function.__defaults__, _by_name(function.__kwdefaults__)])
        for name, kind in _settings(function):
            yield name
            yield from self.words(kind)
        for name in sorted(_names(function.__code__) & function.__globals__.keys()):
            yield name
            yield from self.words(function.__globals__[name])
        for cell in function.__closure__ or ():
            try:
                yield from self.words(cell.cell_contents)
            except ValueError:  # not yet filled
                yield "empty"

    def _words_of_data(self, value: Any) -> Iterator[str]:
        if isinstance(value, Mapping):
            yield type(value).__name__
            if [*value] != (keys := sorted(value, key=repr)):
                yield f"in the order {[*value]}"
            for key in keys:
                yield repr(key)
                yield from self.words(value[key])
        elif isinstance(value, list | tuple | set | frozenset):
            yield f"{type(value).__name__} of {len(value)}"
            for each in sorted(value, key=repr) if isinstance(value, set | frozenset) else value:
                yield from self.words(each)
        elif (parts := _parts(value)) is not None:
            yield type(value).__name__
            yield from self.words(parts)
        elif self._stands_beside(type(value)) and hasattr(value, "__dict__"):
            yield from self.words([type(value), _by_name(vars(value))])
        else:
            told, inside = _pickled(value, self._stands_beside)
            yield told
            for each in inside:
                yield from self.words(each)


def _names(code: CodeType) -> set[str]:
    """The names that a function and those in it read from its module."""
    own = {str(each.argval) for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return own.union(*(_names(each) for each in code.co_consts if isinstance(each, CodeType)))


def _form(code: CodeType) -> Iterator[str]:
    """The facts that a function's bytes do not say: arguments that it takes in any number, and the code in a try."""
    if taken := code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        yield f"takes {taken} {code.co_argcount} {code.co_kwonlyargcount}"
    found = Counter(each.opname for each in dis.get_instructions(code))
    if found["PUSH_EXC_INFO"] > found["WITH_EXCEPT_START"]:  # a block of ``with`` has one of each
        yield f"tries {code.co_exceptiontable!r}"


def _settings(function: FunctionType) -> Iterator[tuple[str, type]]:
    """The dataclasses that annotations name: ``wrap`` makes an argument of such a class."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # annotations may name what is not there
        return
    for name, hint in hints.items():
        kinds = (each for each in (hint, *typing.get_args(hint)) if isinstance(each, type))
        yield from ((name, kind) for kind in kinds if dataclasses.is_dataclass(kind))


def _by_name(value: Any) -> Any:
    """A dict in the order of its names, where its own order does not count."""
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def _parts(value: Any) -> list[Any] | None:
    """The parts of a wrapper of functions; None for all else."""
    if isinstance(value, staticmethod | classmethod | MethodType):
        return [value.__func__, getattr(value, "__self__", None)] if isinstance(value, MethodType) else [value.__func__]
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, functools.cached_property):
        return [value.func]
    if isinstance(value, dataclasses.Field):
        return [value.name, value.default, value.default_factory, value.init, value.kw_only, dict(value.metadata)]
    if isinstance(value, _CACHE):
        return [value.__wrapped__]
    return None


class _Pickler(pickle.Pickler):
    """Sets apart the code in an object, which ``pickle`` would keep by its name alone.

    Args:
        file: gets the rest.
        stands_beside: whether a class or function is followed.
    """

    def __init__(self, file: io.BytesIO, stands_beside: Callable[[Any], bool]) -> None:
        super().__init__(file)
        self.inside: list[Any] = []
        self._stands_beside = stands_beside

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, type | FunctionType) or not self._stands_beside(value):
            return None
        self.inside.append(value)
        return len(self.inside)


def _pickled(value: Any, stands_beside: Callable[[Any], bool]) -> tuple[str, list[Any]]:
    """A hash of an object by value, such as a tensor, and the code in it."""
    try:
        if isinstance(value, Tensor):
            value = _array_of(value)
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:  # which holds addresses
            return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}", []
        pickler = _Pickler(file := io.BytesIO(), stands_beside)
        pickler.dump(value)
        return hashlib.sha256(file.getvalue()).hexdigest(), pickler.inside
    except Exception:  # what cannot be read is another one in each process: computed again, and never taken for equal
        return f"{type(value).__qualname__} {os.getpid()} {id(value)}", []


def _array_of(tensor: Tensor) -> Any:
    """The numbers of a tensor, and of a type that numpy does not have its bytes and this type."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    try:
        return plain.numpy()
    except TypeError:
        return str(plain.dtype), tuple(plain.shape), plain.reshape(-1).view(torch.uint8).numpy()


def _words_of_module(name: str) -> Iterator[str]:
    """Version of an installed package; of a user's file, its code and that of the files it imports."""
    top = name.partition(".")[0]
    if top in _BUILT_IN:
        yield name
        return
    for distribution in sorted(set(packages_distributions().get(top, ()))):
        yield f"{distribution} {version(distribution)}"
    yield GRAPH.digest(GRAPH.closure([(name, WHOLE)], _none), _none)


def _none(_definition: object) -> bool:
    return False
