"""Descriptions and states for Python: data, and text where they are printed."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memsweep.documents.keys.parts import DescribedItem
from memsweep.documents.keys.plans import StatusDocument
from memsweep.errors import counted
from memsweep.reference.describe import description_text

if TYPE_CHECKING:
    import pandas as pd


class _Text:
    """Printed, and in a notebook, it is its text."""

    def _repr_html_(self) -> str:
        return f'<pre style="line-height: 1.2">{html.escape(repr(self))}</pre>'


class Description(_Text):
    """The meanings of a name; made by ``memsweep.describe``. Printed, it is the text of ``memsweep describe``.

    Attributes:
        name: that was asked for.
        items: a dict for each meaning, as ``memsweep describe --json`` gives it: kind, meaning, file, fields.
    """

    def __init__(self, name: str, items: Sequence[DescribedItem]) -> None:
        self.name, self.items = name, [*items]

    @property
    def fields(self) -> pd.DataFrame:
        """A row for each field of each meaning: type, default, limits and meaning."""
        import pandas as pd

        return pd.DataFrame([{"of": item["kind"], **field} for item in self.items for field in item["fields"]])

    def __repr__(self) -> str:
        return description_text(self.name, self.items)


class Status(_Text):
    """The state of a study; made by ``memsweep.status``.

    Attributes:
        document: all of it, as ``memsweep status --json`` gives it.
    """

    def __init__(self, document: StatusDocument) -> None:
        self.document = document

    @property
    def trials(self) -> pd.DataFrame:
        """A row per trial of the plan: identity, state, since when, failures, outcome, error, what is damaged."""
        import pandas as pd

        return pd.DataFrame(self.document["trials"])

    @property
    def done(self) -> int:
        """Trials that have a result."""
        return self.document["done"]

    @property
    def left(self) -> int:
        """Trials of the plan that have none."""
        return self.document["left"]

    @property
    def complete(self) -> bool:
        """Whether nothing is left to compute."""
        return self.document["complete"]

    @property
    def running(self) -> Mapping[str, Any] | None:
        """Host, process, time and command of what runs the study; None where nothing does."""
        return self.document["running"]

    def __repr__(self) -> str:
        document = self.document
        states = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in document["states"].items())
        who = document["running"]
        runs = "not running" if who is None else f"running: process {who['pid']} on {who['host']}, since {who['since']}"
        return (
            f"{document['study']}: {document['done']} of {counted(len(document['trials']), 'trial')} have a result "
            f"({states}); {runs}"
        )
