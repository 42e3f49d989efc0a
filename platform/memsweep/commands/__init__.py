"""The verbs of the command line that have to do with studies and their results."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from memsweep.config.load.foreign import users_faults

if TYPE_CHECKING:
    from collections.abc import Callable

_TOGETHER = {
    **dict.fromkeys(("plan", "status", "sync"), "look"),
    **dict.fromkeys(("sweep", "resume", "retry", "extend"), "verbs"),
    **{verb: f"stored.{verb}" for verb in ("weights", "upgrade")},
}
"""Verb -> its module, where that is shared with others or lies in a room; any other verb has a module of its name."""


def command(verb: str) -> Callable[..., Any]:
    """The function that runs a verb; imports its module alone, so that no verb waits for the libraries of another."""
    return users_faults()(getattr(import_module(f"{__name__}.{_TOGETHER.get(verb, verb)}"), verb))
