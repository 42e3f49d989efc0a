"""Module factories that are no module: a study, or a results folder of somebody else, names a program to be called."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from memsweep.sweep.store.record import sealed, to_json
from tests.campaign.inputs.answers import CODES, answered, places

_TRAINING = """
task: {name: linear_functional, kernel: exponential, horizon: 8}
training: {seeds: 1, steps: 2, batch_size: 8, validation_size: 8, validate_every: 2}
perturbation: {radii: {from: 1e-2, to: 1.0, count: 2}, starts: 1, ascent_steps: 1, test_size: 8}
"""
_NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self, width, outputs):
        super().__init__()
        self.rnn, self.readout = torch.nn.RNN(1, width, batch_first=True), torch.nn.Linear(width, outputs)

    def forward(self, inputs):
        return self.readout(self.rnn(inputs)[0])
"""
_EVIL = "from pathlib import Path\n\nimport torch\n\nPath({mark!r}).touch()\n\n\nclass Net(torch.nn.RNN):\n    pass\n"


def _hostile(luck: random.Random, folder: Path) -> tuple[str, dict[str, Any], Path]:
    """A factory that leaves a mark where anything of it is imported or called; its arguments; the mark."""
    mark, outside = folder / "mark", folder / "outside"
    outside.mkdir()
    (outside / "evil.py").write_text(_EVIL.format(mark=str(mark)))
    touch = f"touch {mark}"
    command: dict[str, Any]
    factory, command = luck.choice(
        [
            ("subprocess:getoutput", {"cmd": touch}),
            ("subprocess:Popen", {"args": ["touch", str(mark)]}),
            ("os:system", {"command": touch}),
            ("builtins:exec", {"source": f"open({str(mark)!r}, 'w')"}),
            ("builtins:open", {"file": str(mark), "mode": "w"}),
            ("pathlib:Path.touch", {"self": str(mark)}),
            ("shutil:copyfile", {"src": "/etc/hostname", "dst": str(mark)}),
            ("tempfile:NamedTemporaryFile", {"dir": str(folder), "prefix": "mark", "delete": False}),
            (f"{outside / 'evil.py'}:Net", {}),
            ("../outside/evil.py:Net", {}),
        ]
    )
    return factory, command, mark


def _check(folder: Path, mark: Path, words: list[str]) -> None:
    if mark.exists() or any(folder.glob("mark*")):
        raise AssertionError(f"memsweep {words!r} ran a program that a study names")


def factory_in_a_study(luck: random.Random, folder: Path) -> None:
    """A study that names a program is refused in words, and nothing of it is imported or called."""
    factory, arguments, mark = _hostile(luck, folder)
    (folder / "work").mkdir()
    model = {"name": "module", "factory": factory, "width_argument": None, "arguments": arguments}
    if luck.random() < 0.2:
        model |= {"width_argument": "width"}
    (folder / "work" / "evil.yaml").write_text(f"{_TRAINING}model: {json.dumps(model)}\n")
    verb = luck.choice(["plan", "plan", "sweep", "describe", "extend"])
    flags = {"plan": ["--no-probe"], "sweep": ["--inline"], "extend": ["--inline"]}.get(verb, [])
    words = [verb, str(folder / "work" / "evil.yaml"), *flags]
    words += ["--json"] if luck.random() < 0.3 else []
    answered([*words, *(places(folder, folder / "work") if verb != "describe" else [])], frozenset({1, 2}))
    _check(folder, mark, words)


_trained: list[Path] = []


def _study() -> Path:
    """A workspace with a module of its own, and its finished study."""
    if not _trained:
        work = Path(tempfile.mkdtemp(prefix="campaign.hostile."))
        (work / "net.py").write_text(_NET)
        (work / "own.yaml").write_text(f"{_TRAINING}model: {{name: module, factory: 'net.py:Net', width: 2}}\n")
        answered(["sweep", str(work / "own.yaml"), "--inline", *places(work, work)], frozenset({0}))
        _trained.append(work)
    return _trained[0]


def factory_in_results(luck: random.Random, folder: Path) -> None:
    """Results of somebody else whose plan and records name a program, under right hashes: no verb runs it."""
    factory, arguments, mark = _hostile(luck, folder)
    shutil.copytree(_study() / "results", folder / "results")
    study = folder / "results" / "own"
    for file in [study / "plan.json", study / "plan.copy.json", *(study / "records").glob("*.json")]:
        if file.exists():
            content = _renamed(json.loads(file.read_text()), factory, arguments)
            file.write_bytes(to_json(sealed(content), "it") if "sha256" in content else json.dumps(content).encode())
    if luck.random() < 0.5:  # something is left to compute
        for file in (study / "records").glob("*.json"):
            file.unlink()
    (folder / "work").mkdir()
    verb = luck.choice(["status", "report", "resume", "retry", "sync", "weights", "measure"])
    flags = ["--inline"] if verb in ("resume", "retry", "measure") else []
    where = places(folder, folder / "work")
    words = [verb, "own", *flags, *(where if verb not in ("status", "weights") else where[:2])]
    answered(words, CODES)
    _check(folder, mark, words)


def _renamed(value: Any, factory: str, arguments: dict[str, Any]) -> Any:
    """A stored value with another factory wherever it names one."""
    if isinstance(value, list):
        return [_renamed(each, factory, arguments) for each in value]
    if not isinstance(value, dict):
        return factory if value == "net.py:Net" else value
    found = {name: _renamed(each, factory, arguments) for name, each in value.items()}
    return found | ({"factory": factory, "arguments": arguments} if "factory" in found else {})


def forget() -> None:
    """Delete what was made."""
    while _trained:
        shutil.rmtree(_trained.pop(), ignore_errors=True)
