"""Factories of this process, which no file holds: a class of a notebook's cell, or a module that Python gives.

The engine imports what a config names (``memsweep.models.module.factory``). Here a name stands for something of this
process, ``in memory:Net@3f2a...``. Workers get it with their job, by value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PLACE = "in memory"
"""In place of a module's name; no file and no package can have it."""
_TARGET = f"{PLACE}:"


def put(name: str, make: Callable[..., Any]) -> str:
    """Lets the engine find a callable by a name without dots, and gives the target that a config names."""
    if PLACE not in sys.modules:
        place = ModuleType(PLACE)
        place.__spec__, place.__file__ = ModuleSpec(PLACE, None), None
        sys.modules[PLACE] = place
    setattr(sys.modules[PLACE], name, make)
    return f"{_TARGET}{name}"


def drop(target: str) -> None:
    """Forgets a callable."""
    delattr(sys.modules[PLACE], target.removeprefix(_TARGET))


def held(targets: Iterable[str]) -> dict[str, Callable[..., Any]]:
    """The callables of this process among these targets, by name: what a worker needs besides files."""
    known = vars(sys.modules.get(PLACE, ModuleType(PLACE)))
    names = (target.removeprefix(_TARGET) for target in targets if target.startswith(_TARGET))
    return {name: known[name] for name in names if name in known}


def put_all(code: Mapping[str, Callable[..., Any]]) -> None:
    """Takes what ``held`` gave in another process."""
    for name, make in code.items():
        put(name, make)


def is_gone(target: str) -> bool:
    """Whether a target stood in a process that has ended: no file holds its code."""
    return target.startswith(_TARGET) and not held([target])


def told_gone(target: str) -> str:
    """The sentence that says what to do about it."""
    name = target.removeprefix(_TARGET)
    word = name.partition("@")[0]
    return (
        f"{name} stood in a Python session (a cell of a notebook, say), and no file holds its code. Run the study "
        f"there again (memsweep.sweep, with {word} as it was: stored results are found). Or put {word} into a file of "
        f"the workspace, and name it in a study of its own (my_nets:{word})."
    )
