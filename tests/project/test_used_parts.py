"""Every task, model, unit, parameterization and learning rule is asked of in a study that comes with the project."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from memsweep import registry
from memsweep.config.load.study_files import find, names
from paths import ROOT

FIELDS = {
    registry.TASK: "task",
    registry.MODEL: "model",
    registry.UNIT: "unit",
    registry.PARAMETERIZATION: "parameterization",
    registry.RULE: "rule",
}
"""Kind of part -> the field that names one; `units` names several."""
WITHOUT = {
    (registry.MODEL, "module"): "a user's own module, which a study names by its path",
    (registry.UNIT, "module"): "a user's own layer, as above",
}
"""Part -> why no study uses it."""


def named(data: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Field and name of each part that a study's file names, those of axes and searched domains among them."""
    if isinstance(data, dict):
        for path, value in data.items():
            *before, last = path.split(".")
            own = field if last in ("name", "choice") and not before else before[-1] if last == "name" else last
            yield from named(value, own.removesuffix("s") if own == "units" else own)
    elif isinstance(data, list):
        for each in data:
            yield from named(each, field)
    elif isinstance(data, str):
        yield field, data


def test_parts_are_found_where_studies_name_them() -> None:
    text = """
    task: {name: adding}
    grid:
      model.name: [lru, ssm]
      training.rule: [bptt]
      rows: [{model: {unit: {name: gru}, parameterization: exp}}]
      model.units: [[{name: s6}, {name: attention}]]
    search: {space: {model.parameterization: {choice: [direct, {name: best, a: 1.0}]}}}
    """
    assert set(named(yaml.safe_load(text))) == {
        *(("task", "adding"), ("model", "lru"), ("model", "ssm"), ("rule", "bptt"), ("unit", "gru"), ("unit", "s6")),
        *(("unit", "attention"), ("parameterization", "exp"), ("parameterization", "direct")),
        ("parameterization", "best"),
    }


@pytest.mark.parametrize("kind", FIELDS)
def test_no_part_is_without_a_study_that_uses_it(kind: str) -> None:
    registry.discover(ROOT)
    used = {pair for study in names(ROOT) for pair in named(yaml.safe_load(find(study, ROOT).read_text("utf-8")))}
    own = [name for name in registry.names(kind) if registry.is_own(registry.get(kind, name))]
    unused = {name for name in own if (FIELDS[kind], name) not in used}
    assert unused == {name for of, name in WITHOUT if of == kind}
