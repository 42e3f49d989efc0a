"""The failures of a study as an answer: grouped by cause, with the settings that they share and the user's own line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memsweep.outcome import Outcome
from memsweep.report.read.fields import varied_fields
from memsweep.sweep.store.journal import State

_FRAME = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in .*)?$(?:\n {4,}(?P<code>\S.*))?', re.M)
_KIND = re.compile(r"([A-Za-z_][\w.]*): ")
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_IDENTITY = re.compile(r"\b[0-9a-f]{32}\b")
_IDENTITY_OF = re.compile(rf"(?P<of>\bof )?(?P<name>{_IDENTITY.pattern})")
_NOT_THEIRS = re.compile(r"^<|/(?:site|dist)-packages/|/lib(?:64)?/python3[.\d]*/|/platform/memsweep/")
"""Python's own files, those of installed packages, and memsweep's: a traceback may come from another machine."""
_ENGINE = f"{Path(__file__).resolve().parents[2]}/"
_LONGEST = 300  # characters of a cause
_MOST_VALUES = 3  # of a setting that tells a group from the trials that did not fail
_MOST_NAMED = 4  # groups in a sentence


@dataclass(frozen=True)
class FailureGroup:
    """Trials of a study that failed by one cause.

    Attributes:
        kind: type of the exception; without one, the outcome in words (``out of memory``).
        text: the first line of what it says, of the first of the trials.
        alike: all of the trials say that; otherwise their texts differ in numbers.
        outcome: of the trials, as ``Outcome``.
        file, line: the innermost line of the user's own code; empty and 0 where the traceback has none.
        code: that line of code; may be empty.
        settings: dotted path -> the values that these trials share, and that tell them from others of the study.
        identities: of the trials, in the order of the plan.
        planned: number of trials of the study.
        traceback: of the first of them; may be empty.
    """

    kind: str
    text: str
    alike: bool
    outcome: str
    file: str
    line: int
    code: str
    settings: Mapping[str, tuple[Any, ...]]
    identities: tuple[str, ...]
    planned: int
    traceback: str

    @property
    def count(self) -> int:
        """Number of trials."""
        return len(self.identities)

    @property
    def place(self) -> str:
        """``my_nets.py:13``; empty where it is not known."""
        return f"{Path(self.file).name}:{self.line}" if self.file else ""

    @property
    def where(self) -> str:
        """``task.horizon=32, model.width=2``; empty where the trials share no setting of their own."""
        return ", ".join(f"{path}={','.join(map(_spelled, values))}" for path, values in self.settings.items())

    @property
    def advice(self) -> str:
        """What to do; empty for an outcome that this version does not know."""
        return State(self.outcome).explanation if self.outcome in {*Outcome} else ""

    @property
    def cause(self) -> str:
        """``RuntimeError at my_nets.py:13: no more than 31 steps``."""
        place = f" at {self.place}" if self.place else ""
        return f"{self.kind}{place}: {self.said}" if self.text else f"{self.kind}{place}"

    @property
    def said(self) -> str:
        """The text, as an example where the trials do not all say it."""
        return self.text if self.alike or not self.text else f"for example, {self.text}"


def failure_groups(
    rows: Mapping[str, Mapping[str, Any]], failures: Mapping[str, Mapping[str, Any]]
) -> tuple[FailureGroup, ...]:
    """The failures of a study by cause: the largest group first, then in the order of the plan.

    Failures are of one cause if they have one outcome, one type of exception, one line of the user's code, and texts
    that differ in numbers alone. A trial that diverged has a result, and did not fail.

    Args:
        rows: identity -> canonical config, of every planned trial.
        failures: identity -> outcome, error and traceback, of trials that failed; others than planned are passed over.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for identity in rows:
        if identity in failures:
            groups.setdefault(_cause(failures[identity]), []).append(identity)
    fields = varied_fields(rows) if groups else {}
    alive = [fields[identity] for identity in rows if identity not in failures] if groups else []
    made = [_group(names, [failures[name] for name in names], fields, alive) for names in groups.values()]
    return tuple(sorted(made, key=lambda group: -group.count))


def failure_sentence(groups: Sequence[FailureGroup]) -> str:
    """``All 16 trials failed: 12 AttributeError at my_nets.py:13 (…), 4 (task.horizon=32) RuntimeError …``.

    Empty without a failure.
    """
    if not groups:
        return ""
    failed, planned = sum(group.count for group in groups), groups[0].planned
    who = (
        f"{failed} of {planned} trials" if failed < planned else f"All {planned} trials" if planned > 1 else "The trial"
    )
    if len(groups) == 1:
        where = f" ({groups[0].where})" if groups[0].where and failed < planned else ""
        return f"{who} failed{where}: {groups[0].cause.rstrip('.')}."
    told = [f"{group.count}{f' ({group.where})' if group.where else ''} {_brief(group)}" for group in groups]
    left = sum(group.count for group in groups[_MOST_NAMED:])
    return f"{who} failed: {', '.join([*told[:_MOST_NAMED], *([f'{left} by other causes'] if left else [])])}."


def failure_lines(groups: Sequence[FailureGroup]) -> list[str]:
    """The sentence, then the user's line of code for each cause where it is known, then what to do."""
    places = [f"  {group.file}:{group.line}{f': {group.code}' if group.code else ''}" for group in groups if group.file]
    advice = dict.fromkeys(group.advice for group in groups if group.advice)
    return [failure_sentence(groups), *dict.fromkeys(places), *advice] if groups else []


def _brief(group: FailureGroup) -> str:
    place, text = f" at {group.place}" if group.place else "", group.said.rstrip(".")
    return f"{group.kind}{place}{f' ({text})' if text else ''}"


def _cause(failure: Mapping[str, Any]) -> tuple[str, ...]:
    """What failures of one cause have in common."""
    kind, text = _kind_and_text(failure)
    file, line, _ = _place(str(failure.get("traceback") or ""))
    return str(failure["outcome"]), kind, _NUMBER.sub("#", _IDENTITY.sub("#", text)), file, str(line)


def _group(
    names: Sequence[str],
    failures: Sequence[Mapping[str, Any]],
    fields: Mapping[str, Mapping[str, Any]],
    alive: Sequence[Mapping[str, Any]],
) -> FailureGroup:
    failure = failures[0]
    kind, text = _kind_and_text(failure)
    traceback = str(failure.get("traceback") or "")
    file, line, code = _place(traceback)
    return FailureGroup(
        kind=kind,
        text=_IDENTITY_OF.sub(lambda found: _described(fields.get(found["name"]), found["of"] or ""), text),
        alike=len({_IDENTITY.sub("#", _kind_and_text(each)[1]) for each in failures}) == 1,
        outcome=str(failure["outcome"]),
        file=file,
        line=line,
        code=code,
        settings=_shared([fields[name] for name in names], [*fields.values()], alive),
        identities=tuple(names),
        planned=len(fields),
        traceback=traceback,
    )


def _kind_and_text(failure: Mapping[str, Any]) -> tuple[str, str]:
    said = (str(failure.get("error") or "").splitlines() or [""])[0][:_LONGEST]
    named = _KIND.match(said)
    kind = named[1] if named else str(failure["outcome"]).replace("_", " ")
    if failure["outcome"] == Outcome.OUT_OF_MEMORY:
        return "out of memory", said
    return kind, said[named.end() :] if named else said


def _place(traceback: str) -> tuple[str, int, str]:
    """File, number and text of the innermost line of the user's own code; empty and 0 where there is none."""
    for frame in reversed([*_FRAME.finditer(traceback)]):
        file = frame["file"]
        if not _NOT_THEIRS.search(file) and not file.startswith(_ENGINE):
            return file, int(frame["line"]), frame["code"] or ""
    return "", 0, ""


def _shared(
    own: Sequence[Mapping[str, Any]], every: Sequence[Mapping[str, Any]], alive: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[Any, ...]]:
    """The settings that tell these trials from others.

    That is a value that all of them have and not all trials of the study, or a few values that no trial without a
    failure has.
    """
    shared = dict[str, tuple[Any, ...]]()
    for path in dict.fromkeys(path for fields in own for path in fields):
        values = tuple(dict.fromkeys(fields.get(path) for fields in own))
        others = {fields.get(path) for fields in alive}
        fewer = len(values) < len({fields.get(path) for fields in every})
        if fewer and (len(values) == 1 or (len(values) <= _MOST_VALUES and alive and others.isdisjoint(values))):
            shared[path] = values
    return shared


def _described(fields: Mapping[str, Any] | None, of: str) -> str:
    """A trial in words, in the place of its identity, and of the ``of`` in front of it."""
    words = ", ".join(f"{path}={_spelled(value)}" for path, value in (fields or {}).items())
    return f"{of}{words}" if words else "of this study"


def _spelled(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "null" if value is None else str(value)
