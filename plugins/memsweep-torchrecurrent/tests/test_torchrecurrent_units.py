"""Every layer of torchrecurrent keeps the contract of a unit, and torchrecurrent's own answers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("torchrecurrent", reason="the package torchrecurrent is not installed")

import torchrecurrent
from memsweep_torchrecurrent.unit import LAYERS, TorchrecurrentUnit

from memsweep.testing import UnitSuite

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture(params=LAYERS)
def layer(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class TestLayer(UnitSuite):
    unit = "torchrecurrent"

    @pytest.fixture(autouse=True)
    def _of(self, layer: str) -> None:
        self.config = TorchrecurrentUnit.Config(layer=layer)


def test_answers_are_those_of_the_layer_itself(layer: str) -> None:
    unit = TorchrecurrentUnit(TorchrecurrentUnit.Config(layer=layer), width=4, features=4)
    weights = {name: torch.from_numpy(each)[None] for name, each in unit.initial(5, np.random.default_rng(0)).items()}
    itself = getattr(torchrecurrent, layer)(4, 4, batch_first=True, dtype=torch.float64)
    itself.load_state_dict(
        {f"cells.0.{name}": each[0] for name, each in weights.items() if name != "readout"}, strict=False
    )
    x_BTF = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = itself(x_BTF)[0] @ weights["readout"][0].T
    torch.testing.assert_close(unit.run(weights, x_BTF[None])[0], expected, rtol=1e-12, atol=1e-12)


def test_a_study_names_it_as_the_readme_says(tmp_path: Path) -> None:
    """In a process that has only its entry point to find it by; the layers are an axis of the grid."""
    (model,) = re.findall(r"```yaml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    study = tmp_path / "search_spaces" / "mine.yaml"
    study.parent.mkdir()
    study.write_text(f"task: {{name: linear_functional}}\n{model}grid: {{model.unit.layer: [MGU, LEM]}}\n")
    words = [sys.executable, "-m", "memsweep", "plan", "mine", "--no-probe"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "2 trials" in done.stdout
