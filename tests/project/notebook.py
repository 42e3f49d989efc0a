"""The cells of docs/notebook.ipynb: runs them in this process, and writes what they show.

``python tests/project/notebook.py`` writes it into the file.
It needs no Jupyter. As there, a cell shows what it prints and the value of its last expression.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "notebook.ipynb"
Output = dict[str, Any]


def read(file: Path = NOTEBOOK) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def codes(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells of code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def said(cell: dict[str, Any]) -> str:
    """The text that a cell shows."""
    texts = [each.get("text") or each["data"]["text/plain"] for each in cell["outputs"]]
    return "".join("".join(text) for text in texts)


def run(notebook: dict[str, Any]) -> Iterator[list[Output]]:
    """The outputs of each cell of code, one after the other; files go to the working directory."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(codes(notebook)):
        tree = ast.parse(source(cell))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, f"cell {number}", "exec"), names)
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names) if last else None
        outputs: list[Output] = []
        if printed.getvalue():
            outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
        if value is not None:
            data = {"text/plain": _lines(repr(value))}
            if hasattr(value, "savefig"):
                picture = io.BytesIO()
                value.savefig(picture, format="png", dpi=100, metadata={"Software": None})
                data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": ["a figure"]}
            outputs.append(
                {"output_type": "execute_result", "execution_count": number + 1, "metadata": {}, "data": data}
            )
        yield outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Puts the outputs into the file, after a run in an empty folder."""
    notebook = read()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, (cell, outputs) in enumerate(zip(codes(notebook), run(notebook), strict=True)):
            cell["outputs"], cell["execution_count"] = outputs, number + 1
            sys.stderr.write(f"cell {number + 1}\n")
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(text.replace(f"{os.path.realpath(folder)}/", "") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
