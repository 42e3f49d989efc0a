"""The words of the suites when they fail: what was looked at, what was expected, what was got, in numbers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from memsweep.config.schema.canonical import to_dict
from memsweep.report.values.chart import says_something

if TYPE_CHECKING:
    from memsweep.report.values.section import Section
    from memsweep.studies.python.results import Results

Weights = Mapping[str, np.ndarray]


def equal(what: str, found: Any, expected: Any) -> None:
    """Two plain values are equal."""
    assert found == expected, f"{what}: expected {_shown(expected)}, got {_shown(found)}"


def is_filed(section: Section) -> bool:
    """Whether the table of a section is among the files of a report."""
    from memsweep.report.values.section import Place
    from memsweep.report.values.table import CSV

    return section.places.get(CSV) is not Place.NOWHERE


def written(sections: Iterable[Section], results: Results, folder: Path, *, named: bool = True) -> None:
    """The tables and charts of a report's sections lie in its folder and, if ``named``, are those of the results."""
    for one in sections:
        if one.table is not None and one.table.rows and is_filed(one):
            assert (folder / f"{one.table.name}.csv").is_file(), f"no file {one.table.name}.csv in the report"
            assert not named or one.table.name in results.names, f"{one.table.name} is not among {results.names}"
        if any(map(says_something, one.charts)):
            assert one.drawn in results.figures, f"{one.drawn} is not among {[*results.figures]}"
            assert (folder / "figures" / f"{one.drawn}.png").is_file(), f"no file figures/{one.drawn}.png in the report"


def same(
    what: str, found: Tensor, expected: Tensor, rtol: float = 0.0, atol: float = 0.0, equal_nan: bool = False
) -> None:
    """Two tensors of one shape and kind are equal, or as close as the tolerances say."""
    assert found.shape == expected.shape, f"{what}: expected shape {[*expected.shape]}, got {[*found.shape]}"
    torch.testing.assert_close(
        found, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, msg=lambda text: f"{what}: {text}"
    )


def differing(what: str, found: Tensor, before: Tensor) -> None:
    """Two tensors differ by more than rounding."""
    most = float((found - before).detach().abs().max())
    assert not torch.allclose(found, before), f"{what}: expected another value, got the same within {most:.2g}"


def of_generator(first: Weights, again: Weights, other: Weights) -> None:
    """Initial weights of seeds 0, 0 and 1: the first two equal, the third another."""
    moved = {name: float(abs(first[name] - again[name]).max()) for name in first if (first[name] != again[name]).any()}
    assert not moved, f"initial weights drawn twice from seed 0: expected equal ones, got differences of {moved}"
    assert any((first[name] != other[name]).any() for name in first), (
        f"initial weights of seeds 0 and 1: expected different ones, got {len(first)} equal tensors"
    )


def finite(what: str, values: Tensor) -> None:
    odd = int((~torch.isfinite(values)).sum())
    assert odd == 0, f"{what}: expected finite numbers, got {odd} of {values.numel()} that are not"


def plain_config(config: Any) -> None:
    """Each field of a Config has a doc, and its values can be written as JSON."""
    undocumented = [field.name for field in dataclasses.fields(config) if not field.metadata.get("doc")]
    assert not undocumented, f"fields of {type(config).__qualname__} without a doc: {undocumented}"
    json.dumps(to_dict(config), allow_nan=False)


def _shown(value: Any) -> str:
    return f"{[*value]}" if isinstance(value, torch.Size | set | frozenset) else f"{value!r}"
