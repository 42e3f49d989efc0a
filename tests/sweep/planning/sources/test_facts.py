"""A user's file counts with all that may change its numbers: imports, annotations that code reads, messages, order."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from memsweep import registry
from memsweep.sweep.planning.fingerprint import _find, named_fingerprint
from memsweep.sweep.planning.sources.facts import second_text
from memsweep.sweep.planning.sources.source_graph import SourceGraph, _Imports
from memsweep.sweep.planning.sources.statements import WHOLE
from paths import ROOT

HELPERS = {"helpers.py": "def slow(x): return x\ndef fast(x): return 2 * x\n"}
ONE_TWO = {"one.py": "def act(x): return x\nb = 1\n", "two.py": "def act(x): return 2 * x\nb = 2\n"}
BOTH = "import one\nimport two\n"
USED = "from one import b\nfrom two import b as c\ndef f(x): return act(x)\n"
SINGLE = (
    "from functools import singledispatch\n@singledispatch\ndef f(x): return 0\n@f.register\ndef _(x: {}): return 1\n"
)
TRIED = "try:\n    {}\nexcept ImportError:\n    {}\ndef f(x): return act(x)\n"
CAUGHT = (
    "def g():\n    raise ValueError({})\n"
    "def f():\n    try:\n        g()\n    except ValueError as e:\n        return e.args\n"
)
OWN_ERROR = "class Found(Exception): pass\ndef f(x):\n    raise Found({})\n"
METHOD = "class Net:\n    def {}(self):\n        return {}\n    def forward(self): return self.{}()\n"
TASK = (
    "from memsweep.registry import register_task\n"
    "@register_task('t')\nclass Task:\n    def problems(self):\n        yield {}\n"
)
TASK_SETTING = (
    "from memsweep.config.core.fields import setting\nclass Config:\n    size: int = setting({})\n    other = 1\n"
)
OWN_SETTING = "def setting(x): return x\nclass Config:\n    size: int = setting({})\n"
FIELD = "from dataclasses import dataclass\nfrom typing import ClassVar\n@dataclass\nclass C:\n    size: {} = 1\n"
DEFINED = "from attrs import define\nfrom typing import ClassVar\n@define\nclass C:\n    size: {} = 1\n"
SEED = "torch.manual_seed(1)"
SEEDED = "import torch\n{}\n{}\ndef f(x): return b * x\n"
BRANCH = "def wraps(x): return x > 0\ndef f(x):\n{}    return x\n"
IF, STEP = "    if wraps(x):\n        x += 1\n", "    x *= 2\n"
SIDES = "import one\nimport two\ndef f(x): return {}.act(x) - two.act(x)\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from torch.nn import GRU as Layer", "from torch.nn import LSTM as Layer"),
        ("from helpers import slow as act", "from helpers import fast as act"),
        ("from helpers import slow as a, fast as b", "from helpers import fast as a, slow as b"),
        ("import one as pick\n" + BOTH, "import two as pick\n" + BOTH),
        ("from one import act\n" + USED, "from two import act\n" + USED),
        ("from one import act\nimport two", "from two import act\nimport one"),
        ("from one import act\nfrom two import b", "from two import act\nfrom one import b"),
        (
            "def f(x):\n    from torch.nn.functional import relu as g\n    return g(x)",
            "def f(x):\n    from torch.nn.functional import gelu as g\n    return g(x)",
        ),
        (
            TRIED.format("from one import act", "from two import act"),
            TRIED.format("from two import act", "from one import act"),
        ),
        (BOTH + TRIED.format("from one import act", "act = 0"), BOTH + TRIED.format("from two import act", "act = 0")),
        ("from torch import tanh", "from numpy import tanh"),
        ("from torch import sqrt", "from math import sqrt"),
        ("from torch.nn.utils import weight_norm", "from torch.nn.utils.parametrizations import weight_norm"),
        ("import numpy as np", "import torch as np"),
        ("from torch import *", "from numpy import *"),
        (SINGLE.format("int"), SINGLE.format("float")),
        (FIELD.format("int"), FIELD.format("ClassVar")),
        *((METHOD.format(name, 1, name), METHOD.format(name, 2, name)) for name in ("closed_forms", "problems")),
        ("_log = []\ndef f(x):\n    _log.append(1)", "_log = []\ndef f(x):\n    _log.append(2)"),
        ("import warnings\ndef f(x):\n    warnings.simplefilter('error')", "import warnings\ndef f(x):\n    pass"),
        (CAUGHT.format("1"), CAUGHT.format("2")),
        (CAUGHT.format("'a'"), CAUGHT.format("'b'")),
        (OWN_ERROR.format("x"), OWN_ERROR.format("x + 1")),
        (OWN_SETTING.format("1"), OWN_SETTING.format("2")),
        (BRANCH.format(IF + STEP), BRANCH.format(STEP + IF)),
        ("S=1\ndef f(x, s=S): pass\nS=2", "S=1\nS=2\ndef f(x, s=S): pass"),
        (SEEDED.format(SEED, "from one import b"), SEEDED.format("from one import b", SEED)),
        ("print(1)\n" + BOTH, "print(1)\nimport two\nimport one\n"),
        (OWN_ERROR.format("1"), OWN_ERROR.format("2")),
        (DEFINED.format("int"), DEFINED.format("ClassVar")),
        ("T={}\ndef f(x, s=len(T)): pass\nT[1]=1", "T={}\nT[1]=1\ndef f(x, s=len(T)): pass"),
        ("g = print\ng(1)\ndef f(): pass\nX = f()", "g = print\ndef f(): pass\nX = f()\ng(1)"),
        ("from one import act\nact = abs", "act = abs\nfrom one import act"),
        (SIDES.format("one"), SIDES.format("two")),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    from one import act as f",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    from two import act as f",
        ),
    ],
)  # fmt: skip
def test_what_may_change_a_number_counts(before: str, after: str, tmp_path: Path) -> None:
    assert code_of(before, tmp_path) != code_of(after, tmp_path)


PLAIN = "def f(x):\n    return x\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PLAIN, "# a comment\n" + PLAIN),
        (PLAIN, "'''A docstring.'''\n\n\n" + PLAIN.replace("return", "'''Another.'''\n    return")),
        (PLAIN, "def f( x ): return (x)\n"),
        (PLAIN, "from torch import Tensor\ndef f(x: Tensor) -> Tensor:\n    return x\n"),
        (PLAIN, "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import B\n" + PLAIN),
        *((PLAIN, f"{line}\n{PLAIN}") for line in (
            "import math", "import numpy as np", "import torch.nn.functional as F",
            "from torch.nn import functional as F",
            "from torch import Tensor, nn", "from math import sqrt", "from collections.abc import Callable, Generator",
            "from pathlib import Path", "from torch.nn.functional import gelu", "import torch.nn as nn",
            "from torch.optim import Adam", "from dataclasses import dataclass, field, replace",
        )),
        ("S = 1\nS = 2\n" + PLAIN, "import math\nS = 1\nS = 2\n" + PLAIN.replace("(x)", "(x: int)")),
        (TASK.format("'a'"), TASK.format("'b'")),
        (TASK_SETTING.format("1"), TASK_SETTING.format("2")),
        (OWN_ERROR.format("'a'"), OWN_ERROR.format("'b'")),
        ("def f(x):\n    raise ValueError(1)", "def f(x):\n    raise ValueError(2)"),
    ],
)  # fmt: skip
def test_what_says_the_same_has_one_identity(before: str, after: str, tmp_path: Path) -> None:
    assert code_of(before, tmp_path) == code_of(after, tmp_path)


def test_shipped_tasks_count_with_their_usual_text_alone() -> None:
    bound = _Imports("", _find).bound_by
    files = [*(ROOT / "tasks").rglob("*.py"), *ROOT.glob("plugins/*/memsweep_*/[tu]*.py")]
    assert len(files) > 30
    assert [str(path) for path in files if second_text(ast.parse(path.read_text()), bound) is not None] == []


def test_a_function_called_like_a_branch_of_memsweep_is_the_users_own(tmp_path: Path) -> None:
    nested = "def f(x):\n    def drops(n): return n > 2\n    if drops({}):\n        return 0\n    return x\n"
    assert code_of(nested.format(3), tmp_path) != code_of(nested.format(4), tmp_path)


def test_a_package_counts_with_a_module_in_it(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "sub.py").write_text("X = 1\n")
    codes = []
    for text in ("", "'''A docstring.'''\n", "import torch\ntorch.set_default_dtype(torch.float64)\n", "Y = 1\n"):
        (tmp_path / "pkg" / "__init__.py").write_text(text)
        codes.append(code_of("import pkg.sub as s\ndef f(): return s.X\n", tmp_path))
    assert codes[0] == codes[1]
    assert len({*codes}) == 3
    (tmp_path / "pkg" / "__init__.py").write_text("print 'for an older Python'\n")
    assert code_of("import pkg.sub as s\ndef f(): return s.X\n", tmp_path)


def test_a_file_with_the_name_of_a_standard_module_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = written(tmp_path, monkeypatch, "from chunk import act\nclass Net: pass\n", {"chunk.py": "act = 1\n"})
    assert len({asked(), asked("chunk.py", "act = 2\n")}) == 2


def test_annotations_count_where_memsweep_wraps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = "from dataclasses import dataclass\n@dataclass\nclass Small: n = 1\n@dataclass\nclass Big: n = 2\n"
    net = "from sizes import Big, Small\nclass Net:\n    def __init__(self, dim{}, config{}): pass\n"
    asked = written(tmp_path, monkeypatch, net.format("", ""), {"sizes.py": sizes})
    plain, int_, small, big = [
        (asked(text=net.format(*said)), asked(text=net.format(*said), wrap=True))
        for said in (("", ""), (": int", ""), ("", ": Small"), ("", ": Big"))
    ]
    assert plain[0] == plain[1] == int_[0] == int_[1] == small[0] == big[0]
    assert len({plain[1], small[1], big[1]}) == 3


def written(folder: Path, monkeypatch: pytest.MonkeyPatch, net: str, others: dict[str, str]) -> Any:
    """The hash of the code of a user's class, after a file was written."""
    registry.discover()
    monkeypatch.setattr(registry, "folders", lambda: [folder])
    for name, text in {"net_of_facts.py": net, **others}.items():
        (folder / name).write_text(text)

    def asked(name: str = "net_of_facts.py", text: str = "", **settings: Any) -> str:
        if text:
            (folder / name).write_text(text)
        return named_fingerprint(registry.get(registry.MODEL, "module").Config(factory="net_of_facts:Net", **settings))

    return asked


def code_of(net: str, folder: Path) -> str:
    """The hash of a file with the files of its folder, of which no engine counts."""
    for name, text in {"net.py": net, **HELPERS, **ONE_TWO}.items():
        (folder / name).write_text(text)

    def find(module: str) -> Path | None:
        path = folder.joinpath(*module.split("."))
        found = [path / "__init__.py", path.with_suffix(".py")]
        engine = [folder / "net.py"] if module.startswith("memsweep") else []
        return next(filter(Path.is_file, found + engine), None)

    def of_engine(definition: tuple[str, str]) -> bool:
        return definition[0].startswith("memsweep")

    graph = SourceGraph(find, lambda module: not module.startswith("memsweep"))
    return graph.digest(graph.closure([("net", WHOLE)], of_engine), of_engine)
