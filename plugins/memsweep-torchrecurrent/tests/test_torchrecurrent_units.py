"""Every layer of torchrecurrent keeps the contract of a unit, and torchrecurrent's own answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("torchrecurrent", reason="the package torchrecurrent is not installed")

import torchrecurrent
from memsweep_torchrecurrent.unit import LAYERS, TorchrecurrentUnit

from memsweep import registry
from memsweep.testing import UnitSuite


@pytest.fixture(params=LAYERS, autouse=True)
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


def test_the_entry_point_registers_it() -> None:
    registry.discover()
    assert registry.get(registry.UNIT, "torchrecurrent") is TorchrecurrentUnit
