"""One process of checks: ``python -m benchmarks.card.child DEVICE QUICK FILE NAME ...`` writes a line for each event.

The parent reads the file; see ``benchmarks.card.lanes``.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from benchmarks.card.catalogue import Check, Setting, checks  # noqa: E402


def main(device: str, quick: str, file: str, *names: str) -> None:
    """Run the checks with these names."""
    os.environ.setdefault("MEMSWEEP_KERNELS", "plain")  # the oracle; checks of times ask for the compiled code
    from benchmarks.card import measuring

    measuring.prepare()
    by_name = {each.name: each for each in checks()}
    with Path(file).open("w", encoding="utf-8") as lines:

        def tell(**said: Any) -> None:
            lines.write(json.dumps(said) + "\n")
            lines.flush()

        tell(machine=measuring.machine(device))
        for name in names:
            tell(begin=name)
            start, error = time.monotonic(), None
            try:
                wrong = [tell(of=name, row=row) or row for row in rows_of(by_name[name], Setting(device, quick == "1"))]
                error = first_wrong([row for row in wrong if row.get("right") is False])
            except BaseException as raised:
                last = traceback.extract_tb(raised.__traceback__)[-1]
                error = f"{type(raised).__name__}: {str(raised)[:400]} ({Path(last.filename).name}:{last.lineno})"
            tell(end=name, seconds=round(time.monotonic() - start, 2), error=error)
            if error and not measuring.is_well(device):
                os._exit(3)  # an error of CUDA stays: the parent goes on in a new process


def rows_of(check: Check, setting: Setting) -> Iterator[dict[str, Any]]:
    """The rows that the check yields; a check that needs what is not here says so."""
    if missing := [name for name in check.needs if importlib.util.find_spec(name) is None]:
        yield {"left out": f"needs {', '.join(missing)}"}
        return
    function = getattr(importlib.import_module(f"benchmarks.card.{check.module}"), check.function)
    yield from function(setting, *check.arguments)


def first_wrong(rows: list[dict[str, Any]]) -> str | None:
    return f"{len(rows)} rows are wrong, the first: {json.dumps(rows[0])[:300]}" if rows else None


if __name__ == "__main__":
    main(*sys.argv[1:])
