"""Every layer of torchrecurrent keeps the contract of a unit, and torchrecurrent's own answers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("torchrecurrent", reason="the package torchrecurrent is not installed")

import torchrecurrent
from memsweep_torchrecurrent.unit import LAYERS, TorchrecurrentUnit

from memsweep import registry
from memsweep.cli import main
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


def test_a_study_names_it_as_the_readme_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Found by its entry point and in order before a trial runs; the layers are an axis of the grid."""
    (model,) = re.findall(r"```yaml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    study = tmp_path / "search_spaces" / "mine.yaml"
    study.parent.mkdir()
    study.write_text(f"task: {{name: linear_functional}}\n{model}grid: {{model.unit.layer: [MGU, LEM]}}\n")
    code = main(["plan", "mine", "--no-probe", "--workspace", str(tmp_path), "--results", str(tmp_path / "results")])
    told = capsys.readouterr()
    assert code == 0, told.err
    assert "2 trials" in told.out
    assert registry.get(registry.UNIT, "torchrecurrent") is TorchrecurrentUnit
