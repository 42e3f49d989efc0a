"""A page inside a notebook."""

from __future__ import annotations

import html
from pathlib import Path

from memsweep.errors import MemsweepError

_HEIGHT = 800  # pixels


class Page:
    """A page of HTML that needs no other file: in a notebook it shows itself, in a frame of its own.

    Attributes:
        text: the page.
        height: of the frame, in pixels.
    """

    def __init__(self, text: str, height: int = _HEIGHT) -> None:
        self.text, self.height = text, height

    def save(self, path: str | Path) -> Path:
        """Write the page into a file, and give its path.

        Raises:
            MemsweepError: it cannot be written there.
        """
        path = Path(path)
        try:
            path.write_text(self.text, encoding="utf-8", errors="replace")
        except OSError as error:
            raise MemsweepError(f"the page cannot be written to {path}: {error.strerror or error}.") from error
        return path

    def __repr__(self) -> str:
        return f"a page of {len(self.text) / 1024:.0f} KiB; page.save('page.html') writes it into a file"

    def _repr_html_(self) -> str:
        # the page may run its own script, and reach nothing of the notebook
        return (
            f'<iframe srcdoc="{html.escape(self.text)}" sandbox="allow-scripts allow-downloads allow-popups" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )
