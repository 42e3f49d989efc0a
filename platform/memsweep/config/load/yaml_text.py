"""The text of a YAML file, proven harmless before anything builds objects from it.

A few lines of YAML can stand for gigabytes (aliases of aliases), for a call (tags), or for a depth that no parser
survives. The events of the file show all of that at the price of reading it once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memsweep.config.core.problems import show

MOST_BYTES = 1_000_000
MOST_NODES = 20_000
MOST_LEVELS = 32
_LONGEST_NUMBER = 400
"""Characters: more than any float has; from 4300 digits on, Python itself refuses."""

_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map"))
_CALL = re.compile(r"\$\{[^${}:]*:")
CONTROL = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\ufeff")


class UnsafeError(Exception):
    """A file that is not read; the message is the end of a sentence that names it."""


def read_safely(path: Path) -> str:
    """The text of a YAML file that builds nothing but plain data of moderate size.

    Raises:
        UnsafeError: it would not.
        OSError: there is no such file, or it cannot be read.
        yaml.YAMLError: it is no YAML.
    """
    with path.open("rb") as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UnsafeError(f"is larger than {MOST_BYTES:,} bytes. Make several studies of it")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnsafeError(f"is not valid YAML: byte {error.start + 1} is no UTF-8. Save the file as UTF-8") from error
    found = CONTROL.search(text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        sign = f"U+{ord(found[0]):04X}"
        raise UnsafeError(f"is not valid YAML: line {line} holds the character {sign}, which no text has. Take it out")
    _Count().add(_events(text))
    return text


def calls(text: str) -> bool:
    """Whether an interpolation in a text calls a resolver, as ``${oc.env:HOME}`` does, instead of naming a value."""
    return _CALL.search(text) is not None


def _events(text: str) -> Iterator[Any]:
    import yaml  # type: ignore[import-untyped]

    return yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@dataclass
class _Count:
    """What the events of a file stand for.

    Attributes:
        sizes: nodes that each anchor stands for, aliases inside it counted as what they stand for.
        open: the collections around the current event: the anchor, and the count before it.
    """

    nodes: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    open: list[tuple[str | None, int]] = field(default_factory=list)

    def add(self, events: Iterable[Any]) -> None:
        import yaml

        for event in events:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent):
                # an alias inside its own anchor has no size yet: the file would contain itself
                if event.anchor in self.sizes:
                    self.nodes += self.sizes[event.anchor]
                elif any(anchor == event.anchor for anchor, _ in self.open):
                    raise UnsafeError(
                        f"contains itself: line {line} has the alias {show(event.anchor)} of what is around it"
                    )
            elif isinstance(event, yaml.NodeEvent):
                self._node(event, line, isinstance(event, yaml.ScalarEvent))
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, before = self.open.pop()
                self._named(anchor, before)
            if self.nodes > MOST_NODES:
                raise UnsafeError(
                    f"stands for more than {MOST_NODES:,} values, aliases spelled out, in line {line}. Make it smaller"
                )

    def _node(self, event: Any, line: int, is_scalar: bool) -> None:
        if event.tag is not None and event.tag not in _TAGS:
            raise UnsafeError(f"has the tag {show(event.tag)} in line {line}; a study is plain data. Take the tag out")
        self.nodes += 1
        if not is_scalar:
            self.open.append((event.anchor, self.nodes - 1))
            if len(self.open) > MOST_LEVELS:
                raise UnsafeError(f"is nested more than {MOST_LEVELS} levels deep in line {line}. Make it flatter")
            return
        self._named(event.anchor, self.nodes - 1)
        text = event.value
        if found := CONTROL.search(text):
            raise UnsafeError(f"has {show(text)} in line {line}, which holds the character U+{ord(found[0]):04X}")
        if calls(text):
            raise UnsafeError(
                f"has {show(text)} in line {line}; ${{...}} may name another value of the study, but call nothing"
            )
        quoted = event.style in ("'", '"', "|", ">") and event.tag is None
        if len(text) > _LONGEST_NUMBER and not quoted and text.lstrip("+-.")[:1].isdigit():
            raise UnsafeError(f"has a number of {len(text):,} characters in line {line}. Make it shorter")

    def _named(self, anchor: str | None, before: int) -> None:
        if anchor is not None:
            self.sizes[anchor] = self.nodes - before
