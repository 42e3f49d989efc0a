"""Alias bombs: a few hundred bytes of YAML whose aliases stand for millions of values."""

from __future__ import annotations

import random
from pathlib import Path

from sweeping import BASE
from tests.campaign.inputs.answers import answered, bounded, places

SECONDS, MEBIBYTES = 10.0, 200.0
"""The seconds that a command may take for a study of some hundred bytes; an ordinary refusal takes half a second."""

_PLACES = (
    "grid: {{model.width: *{0}}}",
    "description: *{0}",
    "tags: *{0}",
    "task: *{0}",
    "search: {{training.learning_rate: {{choice: *{0}}}}}",
)


def alias_bomb(luck: random.Random, folder: Path) -> None:
    """A study that holds one is refused in words, soon and without much memory, whichever command reads it."""
    levels, each, maps = luck.randrange(5, 12), luck.randrange(5, 12), luck.random() < 0.4
    lines = [f"{_named(0, maps)}: &a0 [2, 3]"]
    for level in range(1, levels):
        inner = [f"*a{level - 1}"] * each
        content = ", ".join(f"k{number}: {alias}" for number, alias in enumerate(inner)) if maps else ", ".join(inner)
        lines.append(f"{_named(level, maps)}: &a{level} " + ("{" + content + "}" if maps else "[" + content + "]"))
    used = luck.choice(_PLACES).format(f"a{levels - 1}")
    kept = [line for line in BASE.strip().splitlines() if line.partition(":")[0] != used.partition(":")[0]]
    text = "\n".join([*lines, *kept, used] if luck.random() < 0.8 else [*kept, *lines])
    (folder / "bomb.yaml").write_text(text + "\n")
    verb = luck.choice(["plan", "plan", "sweep", "extend", "describe", "audit"])
    flags = ["--no-probe"] if verb == "plan" else ["--inline"] if verb in ("sweep", "extend") else []
    words = [verb, str(folder / "bomb.yaml"), *flags, *(places(folder) if verb in ("plan", "sweep", "extend") else [])]
    with bounded(SECONDS, MEBIBYTES):
        answered(words, frozenset({2, 1}))


def _named(level: int, maps: bool) -> str:
    return f"x_{'maps' if maps else 'lists'}{level}"
