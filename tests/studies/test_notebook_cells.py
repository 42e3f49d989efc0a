"""Classes and functions that Python gives in the place of a factory's name, as those of a notebook's cell."""

from __future__ import annotations

import array
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import memsweep as ms
from memsweep.cli import main
from memsweep.errors import ModuleError
from memsweep.models.module.in_memory import drop
from memsweep.studies.cells import digest, name_of_callable
from sweeping import ready

CELL = """
import functools
import torch
from torch import nn

SCALE = 1.0
TABLE = torch.ones(3)
NAMES = {"one", "two", "three"}


class Settings:
    power = 1

    def __init__(self):
        self.shift = 0.25


SETTINGS = Settings()


def twice(x):
    return 2 * x + SETTINGS.shift * SETTINGS.power


class Base(nn.Module):
    rate = 0.5

    @property
    def speed(self):
        return self.rate


class Net(Base):
    def __init__(self, inputs, outputs, width, bias=True):
        super().__init__()
        self.rnn, self.out = nn.RNN(inputs, width, batch_first=True), nn.Linear(width, outputs, bias=bias)

    def forward(self, x):
        h = SCALE * twice(self.rnn(x)[0]) * self.speed
        return self.out(h) + TABLE.sum() * 0 if len(NAMES) == 3 else [each for each in (0, h)][0]


net = functools.partial(Net, bias=False)
"""
STUDY = {
    "name": "cell",
    "task": {"name": "linear_functional", "kernel": "exponential", "horizon": 6},
    "training": {"seeds": 2, "steps": 4, "batch_size": 8, "validation_size": 16, "validate_every": 4},
    "perturbation": {
        "balls": ["recurrent"],
        "starts": 1,
        "ascent_steps": 2,
        "test_size": 16,
        "radii": {"from": 1e-3, "to": 1.0, "count": 3},
    },
}
SCRIPT = f"""
import json, sys
exec(compile({CELL!r}, "<cell>", "exec"), globals())
import memsweep as ms
from memsweep.studies.cells import digest
if sys.argv[1:] == ["ray"]:
    study = {STUDY!r} | {{"model": {{"name": "module", "factory": Net, "width": 3}}}}
    print(ms.sweep(study, inline=False, progress=False).trials["identity"][0])
else:
    print(digest(Net))
"""


def cell(text: str = CELL) -> dict[str, Any]:
    """The definitions of a cell, in a module that no file holds."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "<cell>", "exec"), names)
    return names


def study(**model: Any) -> dict[str, Any]:
    return {**STUDY, "model": {"name": "module", "width": 3, **model}}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with results; the current one."""
    ready(tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_class_of_a_cell_is_trained_and_found_again_and_resume_says_that_it_is_gone(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = ms.sweep(study(factory=cell()["Net"]), inline=True, progress=False)
    assert len(first.replicas) == 2, "each seed has a result"
    changed = cell(CELL.replace("SCALE = 1.0", "SCALE = 2.0"))["Net"]
    assert ms.plan(study(factory=changed)).to_run == 1, "changed code is computed again"
    made = cell()["Net"]
    assert ms.plan(study(factory=made)).to_run == 0, "the same cell, run again, is found"
    drop(name_of_callable(made))  # as in another process
    capsys.readouterr()
    assert main(["resume", "cell", "--results", str(place / "results")]) == 2
    said = capsys.readouterr().err
    assert "stood in a Python session" in said
    assert "my_nets:Net" in said
    assert "Traceback" not in said


def test_a_grid_and_overrides_may_hold_classes(place: Path) -> None:
    one, other = cell()["Net"], cell(CELL.replace("SCALE = 1.0", "SCALE = 3.0"))["net"]
    planned = ms.plan(study(factory=one), {"model.factory": [one, other]})
    assert len(planned.trials) == 2
    assert len(set(planned.trials["identity"])) == 2


def test_a_plan_names_the_guessed_roles_of_a_class_that_no_command_finds() -> None:
    mixed = CELL.replace("super().__init__()", "super().__init__(); self.scale = nn.Parameter(torch.ones(width))")
    made = cell(mixed.replace("self.rnn(x)[0]", "self.rnn(x)[0] * self.scale"))["Net"]
    (note,) = [each for each in ms.plan(study(factory=made)).notes if "guessed" in each]
    assert re.fullmatch(r"in memory:Net@[0-9a-f]{16}: 1 guessed role: scale \w+", note)


def test_audit_and_measure_take_the_class(place: Path) -> None:
    made = cell()["Net"]
    balls = {"perturbation.balls": ["recurrent"], "perturbation.starts": 1, "perturbation.ascent_steps": 2}
    found = ms.measure(made, STUDY["task"], {"model.width": 3, "perturbation.test_size": 16, **balls})
    assert set(found.radii["ball"]) == {"recurrent"}
    assert ms.audit(made, width=3, horizon=16, seconds=10).status in ("pass", "note")
    with pytest.raises(ModuleError, match="has no argument 'layers'"):
        ms.audit(made, width=3, arguments={"layers": 2})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SCALE = 1.0", "SCALE = 2.0"),
        ("torch.ones(3)", "torch.ones(4)"),
        ("rate = 0.5", "rate = 0.6"),
        ("return self.rate", "return -self.rate"),
        ("return 2 * x", "return 3 * x"),
        ("power = 1", "power = 2"),
        ("shift = 0.25", "shift = 0.5"),
        ('{"one", "two", "three"}', '{"one", "two", "four"}'),
        ("(0, h)", "(1, h)"),
        ("bias=True", "bias=False"),
        ("batch_first=True", "batch_first=False"),
    ],
)
def test_whatever_decides_a_number_is_in_the_name(old: str, new: str) -> None:
    assert old in CELL
    assert digest(cell()["Net"]) != digest(cell(CELL.replace(old, new, 1))["Net"])


WAYS = """
import functools
import torch
from dataclasses import dataclass


@dataclass
class Small:
    wide: int = 1
    deep: float = 0.5


@dataclass
class Big:
    wide: int = 2


def one(x):
    return x


def two(x, *more):
    return one(x)


OPS = {"b": one, "a": two}


@functools.lru_cache
def kept(x):
    return 2 * x


class Net(torch.nn.Module):
    def __init__(self, config: Small = None):
        super().__init__()

    @functools.cached_property
    def rate(self):
        return 3

    def forward(self, x):
        for op in OPS.values():
            x = op(x)
        try:
            x = kept(x)
        except ValueError:
            x = 0
        else:
            x = x.sum()
        return x * self.rate
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return 2 * x", "return 4 * x"),
        ("return 3", "return 5"),
        ('{"b": one, "a": two}', '{"a": two, "b": one}'),
        ("def one(x)", "def one(*x)"),
        ("x, *more", "x, more"),
        ("x = kept(x)\n", "x = kept(x)\n            x = x.sum()\n"),
        ("config: Small", "config: Big"),
        ("wide: int = 1", "wide: int = 3"),
    ],
)
@pytest.mark.parametrize("caught", ["except ValueError:", "except:"])
def test_what_compiled_code_does_not_say_is_in_the_name(old: str, new: str, caught: str) -> None:
    ways = WAYS.replace("except ValueError:", caught)
    assert old in ways
    changed = ways.replace(old, new, 1)
    if new.count("sum"):
        changed = changed.replace("        else:\n            x = x.sum()\n", "")
    assert digest(cell(ways)["Net"]) == digest(cell(ways)["Net"])
    assert digest(cell(ways)["Net"]) != digest(cell(changed)["Net"])


def test_comments_and_places_are_no_change() -> None:
    text = "# a comment\nOTHER = 1\n" + CELL.replace("    rate = 0.5", "    # why\n    rate = 0.5")
    assert digest(cell()["Net"]) == digest(cell(text)["Net"])
    assert digest(cell()["net"]) != digest(cell(CELL.replace("Net, bias=False", "Net, bias=True"))["net"])


def test_closures_count() -> None:
    def maker(rate: float) -> Callable[..., nn.Module]:
        class Net(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return rate * x

        return Net

    assert digest(maker(0.5)) == digest(maker(0.5))
    assert digest(maker(0.5)) != digest(maker(0.6))


def test_a_file_of_the_workspace_is_named_by_its_path(place: Path) -> None:
    (place / "cell_nets.py").write_text(CELL)
    from memsweep import registry
    from memsweep.models.module.factory import resolve

    registry.discover(place)
    assert name_of_callable(resolve("cell_nets:Net").make) == "cell_nets:Net"
    assert name_of_callable(nn.GRU).endswith(":GRU")


def test_a_module_in_the_place_of_its_class_is_refused() -> None:
    with pytest.raises(ModuleError, match="give what makes it, the class Net"):
        name_of_callable(cell()["Net"](1, 1, 3))


def _run(folder: Path, *words: str, seed: str = "0") -> str:
    settings = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, cwd=folder, env=settings, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


@pytest.mark.more
def test_the_name_is_the_same_in_every_process(tmp_path: Path) -> None:
    assert _run(tmp_path, seed="1") == _run(tmp_path, seed="2")


@pytest.mark.more
def test_workers_of_ray_get_the_class_by_value(tmp_path: Path) -> None:
    identity = _run(tmp_path, "ray")
    assert (tmp_path / "results" / "cell" / "records" / f"{identity}.json").is_file()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2, torch.complex64])
def test_data_of_any_type_counts_by_value(dtype: torch.dtype) -> None:
    def maker(value: float) -> Any:
        kept, codes, objects = torch.full((2, 3), value).to(dtype), array.array("d", [value]), np.array([value, None])

        class Net(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x * kept.float() * codes[0] * objects[0]

        return Net

    assert digest(maker(0.5)) == digest(maker(0.5))
    assert digest(maker(0.5)) != digest(maker(2.0))
