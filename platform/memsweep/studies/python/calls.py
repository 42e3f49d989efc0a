"""The calls of ``import memsweep``: the state of torch in which all verbs compute, their warnings, and their place."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from memsweep import registry
from memsweep.errors import ConfigError
from memsweep.models.contracts import default_dtype
from memsweep.report.naming.numbers import is_number
from memsweep.studies.locations import Place, names_folder
from memsweep.sweep.driver.launch import Launch, Limits
from memsweep.sweep.store.filesystem import Location

_P = ParamSpec("_P")
_R = TypeVar("_R")


_TURN = threading.RLock()
"""Of the calls that compute in this process: names of modules and tasks in memory, torch's default precision and its
random numbers are those of the process, so that a call in another thread would compute with them."""


def verb(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Computes with gradients, on the processor and in float32 where nothing else is asked for; one call at a time.

    The caller may have turned gradients off (``torch.no_grad``, inference mode), or chosen a device or precisions
    (``torch.set_default_device``, ``torch.autocast``, ``torch.set_default_dtype``). With ``address`` or
    ``inline=False`` trials run in processes of their own, and the call waits for no turn.
    """

    @functools.wraps(function)
    def called(*args: _P.args, **options: _P.kwargs) -> _R:
        elsewhere = options.get("address") is not None or options.get("inline") is False
        with contextlib.ExitStack() as own:
            own.enter_context(torch.inference_mode(False))
            own.enter_context(torch.enable_grad())
            if torch.get_default_device().type != "cpu":
                own.enter_context(torch.device("cpu"))
            for device in ("cpu", "cuda"):
                if torch.is_autocast_enabled(device):
                    own.enter_context(torch.autocast(device, enabled=False))
            if not elsewhere:
                own.enter_context(_TURN)
                # looked at in its turn: another call may have set it for its own time
                if torch.get_default_dtype() != torch.float32:
                    own.enter_context(default_dtype(torch.float32))
            return function(*args, **options)

    return called


def warn(text: str) -> None:
    """Warns of a call, at the line of the caller that is not memsweep's."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "memsweep":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def discover(workspace: str | Path) -> None:
    """Finds the parts of a workspace, and warns of those that do not load.

    Raises:
        ConfigError: there is no such folder.
    """
    if not (folder := Path(workspace)).is_dir():
        wrong = f"The workspace {workspace} is {'no folder' if folder.exists() else 'not there'}."
        raise ConfigError([f"{wrong} Give the folder that holds your tasks/ and search_spaces/."], "the call")
    for sentence in registry.discover(folder):
        warn(sentence)


def place_of(
    where: Location,
    workspace: str | Path,
    launch: Launch,
    limits: Limits,
    *named: str | Path | None,
) -> Place:
    """The place where a run computes.

    Args:
        where: the folder of all results.
        workspace, launch, limits: as of ``Place``.
        named: paths that the caller gave.

    Raises:
        ConfigError: what the caller gave is not allowed.
    """
    problems = [f"{name} must be a number above 0, got {value!r}." for name, value in _wrong(limits)]
    inline: Any = launch.inline
    if inline is not None and not isinstance(inline, bool):
        problems.append(f"inline is True, False or None, got {inline!r}.")
    elif inline and launch.address is not None:
        problems.append("inline=True runs in this process, and address joins a cluster: give one of the two.")
    if problems:
        raise ConfigError(problems, "the call")
    return Place(where, Path(workspace), launch, limits, names_folder(where, *(path or "" for path in named)))


def _wrong(limits: Limits) -> list[tuple[str, Any]]:
    known = {f"max_{name}": value for name, value in vars(limits).items() if value is not None}
    return [(name, value) for name, value in known.items() if not (is_number(value) and value > 0)]
