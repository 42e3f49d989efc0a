"""Decides, before anything is imported or called, whether a document may have its names called, and remembers it."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict

from memsweep import builtin
from memsweep.errors import ModuleError, TrustError, counted
from memsweep.home import state_folder
from memsweep.trust.calls import Call, calls_of, in_workspace


class _Entry(TypedDict):
    call: str
    studies: list[str]
    when: str


def kept_file() -> Path:
    """The file of what this user trusts."""
    return state_folder() / "trusted.json"


def known(study: str | None = None) -> frozenset[str]:
    """The digests of what was trusted; none where there is no such file, or others may write to it.

    Args:
        study: of this study alone; None: of all.
    """
    return frozenset(digest for digest, entry in _read().items() if study is None or study in entry["studies"])


def keep(trusted: Mapping[str, str], study: str) -> None:
    """Remembers the calls of a study.

    Where the file cannot be written nothing is remembered: the person is asked again.

    Args:
        trusted: digest -> the call, for the person who reads the file.
        study: its name.
    """
    from filelock import FileLock

    file = kept_file()
    if not trusted or not trusted.keys() - known(study):
        return
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(f"{file}.lock", mode=0o600):
            content, now = _read(), datetime.now(UTC).isoformat(timespec="seconds")
            for digest, call in trusted.items():
                entry = content.setdefault(digest, {"call": call, "studies": [], "when": now})
                entry["studies"] = sorted({*entry["studies"], study})
            _replace(file, json.dumps({"trusted": content}, indent=1))


def _read() -> dict[str, _Entry]:
    try:
        with kept_file().open(encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.getuid() or about.st_mode & 0o022:
                return {}
            content: dict[str, _Entry] = json.load(file)["trusted"]
            return {digest: entry for digest, entry in content.items() if isinstance(entry["studies"], list)}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):  # absent, or damaged
        return {}


def _replace(file: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=file.parent)  # mode 600
    try:
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(name, file)
    except OSError:
        os.unlink(name)
        raise


_FACTORIES = "memsweep.models.module.factory"
"""By name, because this room stands below it."""
_MOST_NAMED = 5
_ELSEWHERE = "a study from elsewhere names it"
_NOT_PLANNED = "this user has not planned it"


@dataclass(frozen=True)
class Trust:
    """The word of the person who gave a command.

    Attributes:
        given: what the document names may run.
        ask: puts a question, and says whether the answer was yes; None where nobody can answer.
        carried: digests that the person who submitted this job has trusted.
    """

    given: bool = False
    ask: Callable[[str], bool] | None = None
    carried: frozenset[str] = frozenset()


NONE = Trust()


@dataclass(frozen=True)
class _Document:
    """A document that names calls.

    Attributes:
        study: its name.
        shown: for a message.
        foreign: why every call of it needs a word; empty: each by what it is.
    """

    study: str
    shown: str
    foreign: str = ""


def admit_study(data: Mapping[str, Any], written: str, path: Path, typed: Any, trust: Trust) -> None:
    """Lets a study have its factories called, or refuses it.

    Args:
        data: the study with its overrides, as plain data.
        written: what its file says, as text.
        path: of the file.
        typed: the overrides of the command line: what they name is the person's own.
        trust: the person's word.

    Raises:
        TrustError: it names code that needs their word.
    """
    own = {call.target for call in calls_of(typed, "typed").values()}
    content = hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()
    calls = {digest: call for digest, call in calls_of(data, content).items() if call.target not in own}
    here = in_workspace(path) or path.is_relative_to(builtin.folder(builtin.STUDIES))
    name = str(data.get("name", path.stem))
    _admit(calls, _Document(name, f"the study {path}", "" if here else _ELSEWHERE), trust, known())


def admit_plan(models: Sequence[Any], study: str, where: str, trust: Trust, also: Sequence[Any] = ()) -> None:
    """Lets a stored plan have its factories called, or refuses it.

    Args:
        models: canonical configs of its models.
        study: its name.
        where: the folder that holds it.
        trust: the person's word.
        also: those of models that are trusted already, such as those of a study of the workspace.

    Raises:
        TrustError: it names code that this user has neither planned nor trusted.
    """
    mine = known() | calls_of(also).keys()
    _admit(calls_of(models), _Document(study, f"the stored plan in {where}", _NOT_PLANNED), trust, mine)


def remember(models: Sequence[Any], study: str) -> None:
    """Notes that this user planned trials of these models, so that the plan of their study may be continued."""
    keep(_targets(calls_of(models)), study)


def _admit(calls: Mapping[str, Call], document: _Document, trust: Trust, mine: Collection[str]) -> None:
    """Refuses calls, given by digest, that need a word and have none; ``mine`` are the digests that have it."""
    if trust.given:
        keep(_targets(calls), document.study)
        return
    asked = {digest: call for digest, call in calls.items() if digest not in mine and digest not in trust.carried}
    reasons = {digest: why for digest, call in asked.items() if (why := document.foreign or _reason(call))}
    if not reasons:
        return
    told = [f"{asked[digest].shown}: {why}" for digest, why in reasons.items()]
    more = f"; and {counted(len(told) - _MOST_NAMED, 'more call')}" if len(told) > _MOST_NAMED else ""
    what = f"{document.shown} would run {'; '.join(told[:_MOST_NAMED])}{more}. Nothing of it has been called."
    if trust.ask is None or not trust.ask(what):
        raise TrustError(f"{what} Read that code. To run it, now and later, add --trust (in Python trust=True).")
    keep(_targets({digest: asked[digest] for digest in reasons}), document.study)


def _targets(calls: Mapping[str, Call]) -> dict[str, str]:
    return {digest: call.target for digest, call in calls.items()}


def _reason(call: Call) -> str:
    """Why a call that a study of the workspace names needs a word; empty where it needs none."""
    if call.place is not None and not call.in_workspace:
        return "it lies outside of the workspace"
    factories = import_module(_FACTORIES)
    try:
        factory = factories.resolve(call.target)
    except ModuleError:  # the study's own checks say what is wrong: nothing can be called
        return ""
    from torch import nn

    if isinstance(factory.make, type) and issubclass(factory.make, nn.Module):
        return ""
    if factory.own and factory.file is not None and in_workspace(factory.file) and _defined_here(factory):
        return ""
    return "it is no class of modules, and no file of the workspace defines it"


def _defined_here(factory: Any) -> bool:
    """Whether a file of the workspace holds the callable itself: ``my_nets:os.system`` is Python's."""
    make, name = factory.make, factory.target.partition(":")[2]
    if isinstance(make, type) or inspect.isroutine(make):
        home = sys.modules.get(str(getattr(make, "__module__", "")))
        file = getattr(home, "__file__", None)
        return file is not None and in_workspace(Path(file).resolve())
    return "." not in name  # an object that the file made, such as a functools.partial
