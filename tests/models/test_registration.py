"""Registration refuses a class that the engine could not run: one sentence, before any sweep."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from memsweep import registry
from memsweep.config.core.fields import setting
from memsweep.data.api import Task
from memsweep.errors import RegistryError
from memsweep.models.base import Model
from memsweep.models.deep.unit import DeepModel, OnlineUnit, Unit
from memsweep.models.deep.unit_lru import LRUUnit
from memsweep.models.modal.diagonal_rnn import DiagonalRNN
from memsweep.models.parameterizations.base import Parameterization
from memsweep.rules.base import Rule
from paths import ROOT


@dataclass(frozen=True, kw_only=True)
class Empty:
    """No settings."""


@dataclass(kw_only=True)
class Melting:
    """Not frozen."""

    width: int = setting(8, "hidden size")


@dataclass(frozen=True, kw_only=True)
class Width:
    """A width alone."""

    width: int = setting(8, "hidden size")


@dataclass(frozen=True, kw_only=True)
class Kind(Width):
    """A field of a name that the engine has."""

    kind: str = setting("good", "what kind")


class TorchModel(torch.nn.Module):
    """A model as any user of torch writes it."""

    Config = Width

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.readout = torch.nn.GRU(1, 8), torch.nn.Linear(8, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.readout(self.cell(inputs)[0])


def heir(name: str, *bases: type, **attributes: Any) -> type:
    return type(name, bases, attributes)


def deep(**attributes: Any) -> type:
    """A deep model without abstract methods."""
    names = ("roles", "initial", "outputs")
    return heir("Deep", DeepModel, **{name: lambda *_: None for name in names}, **attributes)


def nameless_unit() -> type:
    names = OnlineUnit.__abstractmethods__
    return heir("Nameless", OnlineUnit, Config=Empty, **{name: lambda *_: None for name in names})


@pytest.mark.parametrize(
    ("register", "part", "message"),
    [
        (
            registry.register_model,
            TorchModel,
            r"\(TorchModel\) is not a subclass of Model.*factory: \"test_registration:TorchModel\".*models.base",
        ),
        (registry.register_task, Empty, r"subclass of Task: .*'from memsweep.data.api import Task'"),
        (registry.register_unit, Empty, r"subclass of Unit: .*memsweep.models.deep.unit import Unit"),
        (registry.register_rule, Empty, r"subclass of Rule: .*memsweep.rules.base import Rule"),
        (registry.register_parameterization, Empty, r"subclass of Parameterization: .*parameterizations.base import"),
        (registry.register_model, lambda: None, r"is not a subclass of Model"),
        (registry.register_model, heir("Bare", Model, Config=Width), r"lacks forward, initial, roles: define each"),
        (registry.register_task, heir("Bare", Task, Config=Empty), r"lacks .*draw.*loss.*memsweep.data.api.Task say"),
        (registry.register_unit, heir("Bare", Unit, Config=Empty), r"lacks initial, roles, run, step: define each"),
        (registry.register_parameterization, heir("Bare", Parameterization, Config=Empty), r"lacks .*rate.*raw"),
        (registry.register_model, heir("Heir", DiagonalRNN), r"has no Config of its own: write inside the class"),
        (registry.register_model, heir("Soft", DiagonalRNN, Config=Melting), r"has no Config of its own"),
        (registry.register_model, heir("Thin", DiagonalRNN, Config=Empty), r"Config without width: write in it 'width"),
        (registry.register_model, deep(Config=Width), r"Config without unit: write in it 'unit"),
        (
            registry.register_model,
            heir("Kind", DiagonalRNN, Config=Kind),
            r"has a field kind in its Config, a name that",
        ),
        (registry.register_unit, nameless_unit(), r"does not name its parts: write 'part_names"),
    ],
)
def test_a_class_that_could_not_run_is_refused_in_one_sentence(
    register: Callable[[str], Callable[[Any], Any]], part: Any, message: str
) -> None:
    with pytest.raises(RegistryError, match=message) as caught:
        register("refused")(part)
    assert "\n" not in str(caught.value)
    assert all("refused" not in registry.names(kind) for kind in registry.KINDS)


def test_a_class_that_lacks_nothing_is_registered() -> None:
    rule = registry.register_rule("plain")(heir("Plain", Rule))  # nothing to be set: an empty Config is made
    assert registry._parts[registry.RULE].pop("plain").Config() == rule.Config()
    heir_of_lru = heir("Again", LRUUnit, Config=dataclass(frozen=True, kw_only=True)(heir("Config", LRUUnit.Config)))
    assert registry.register_unit("again")(heir_of_lru) is heir_of_lru
    assert registry._parts[registry.UNIT].pop("again") is heir_of_lru


def test_what_the_engine_registers_is_found_in_its_text() -> None:
    """A part whose decorator the search in the text misses would be known in one process and unknown in the next."""
    for package in registry._OWN:
        found = {(kind, name): module for kind, name, module in registry._registered_in(package)}
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
        own = {
            (kind, name): part.__module__
            for kind in registry.KINDS
            for name, part in registry._parts[kind].items()
            if part.__module__.startswith(f"{package}.")
        }
        assert found == own


@pytest.mark.more
def test_a_study_imports_no_model_unit_or_rule_that_it_does_not_use() -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom memsweep.config.load.study import load_study\n"
        "load_study('quickstart', [], Path('.'))\n"
        "print(*(name for name in sys.modules if name.startswith(('memsweep.models', 'memsweep.recurrence'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert "memsweep.models.modal.diagonal_rnn" in imported
    others = ("deep.unit_", "deep.attention.", "deep.fixed.", "matrix.", "stable_ssm.", "module.", "modal.lru")
    assert not [name for name in imported if name.startswith(tuple(f"memsweep.models.{each}" for each in others))]


def test_a_task_file_that_misses_its_neighbour_is_told_how_to_find_it(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (tmp_path / "beside_tasks.py").write_text("x = 1\n")
    (folder / "_in_tasks.py").write_text("x = 1\n")
    imports = ("import beside_tasks", "import _in_tasks", "import nowhere_at_all", "from ._in_tasks import x")
    for number, line in enumerate(imports):
        (folder / f"own{number}.py").write_text(f"{line}\n")
    try:
        beside, within, nowhere, relative = registry.discover(tmp_path)
    finally:
        registry.discover(ROOT)
    assert f"set PYTHONPATH={tmp_path}, on all nodes" in beside
    assert f"set PYTHONPATH={folder}, on all nodes" in within
    assert "PYTHONPATH" not in nowhere
    assert "import the file beside it by its name alone, without a dot" in relative
    assert f"set PYTHONPATH={folder}, on all nodes" in relative


def test_a_file_that_is_skipped_is_named_with_its_own_line(tmp_path: Path) -> None:
    """And with no line of memsweep's, which imports it."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "unread.py").write_text("x = 1\ny = (\n")
    (folder / "failing.py").write_text("from memsweep import registry\n\nregistry.get('task', 'no_such_task')\n")
    try:
        failing, unread = registry.discover(tmp_path)
    finally:
        registry.discover(ROOT)
    assert unread.endswith("unread.py was skipped: SyntaxError: '(' was never closed (unread.py, line 2)")
    assert failing.endswith(" (failing.py, line 3)")


def test_a_part_of_others_with_the_name_of_one_that_waits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever comes first: neither may take the place of the other unseen."""
    parts, waiting = {"lru": heir("Other", LRUUnit, Config=LRUUnit.Config)}, dict[str, str]()
    monkeypatch.setitem(registry._parts, registry.UNIT, parts)
    monkeypatch.setitem(registry._waiting, registry.UNIT, waiting)
    registry.find_in("memsweep.models")
    assert waiting["lru"] == LRUUnit.__module__
    monkeypatch.delitem(sys.modules, LRUUnit.__module__)
    with pytest.raises(RegistryError, match="two units are named 'lru'"):
        registry.get(registry.UNIT, "lru")
    assert "lru" in registry.names(registry.UNIT)
