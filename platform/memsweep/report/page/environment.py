"""The templates of all pages, and how foreign text gets into them."""

from __future__ import annotations

import html
import re
from pathlib import Path

import jinja2
from jinja2.filters import do_mark_safe

from memsweep.gate import gated

_POWER = re.compile(r"(?<=\S)\^(?:\(([^()]*)\)|([−–+-]?[\w.]*))")
"""``T^−0.2`` or ``m^(+0.31 [+0.18, +0.40])``, as texts without markup write an exponent."""


def templates() -> jinja2.Environment:
    """The templates of all pages."""
    folder = Path(__file__).parents[1] / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,  # names, reasons and tracebacks are data, whatever they contain
        finalize=lambda value: gated(value) if type(value) is str else value,  # what is no markup is foreign text
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["powers"] = _powers
    environment.globals["style"] = (folder / "style.css").read_text(encoding="utf-8").rstrip("\n")
    return environment


def _powers(text: str) -> str:
    """Foreign text as markup: all of it is escaped, and its exponents are raised."""
    raised = _POWER.sub(lambda found: f"<sup>{found[1] or found[2]}</sup>", html.escape(gated(text)))
    return do_mark_safe(raised)
