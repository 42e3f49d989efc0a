"""Every registered part passes the conformance suite of its kind, without an edit here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from arena_files import write_arena
from engine import usual_model, usual_unit
from image_files import write_cifar, write_mnist
from memsweep import registry
from memsweep.rules.base import online_units
from memsweep.testing import AnalysisSuite, MeasureSuite, ModelSuite, OnlineUnitSuite, RuleSuite, TaskSuite, UnitSuite
from paths import ROOT
from text_files import write_ptb, write_text

registry.discover(ROOT)


@pytest.fixture(scope="module", autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Data where tasks on published files look for it: real formats, random pixels and sentences."""
    folder = tmp_path_factory.mktemp("data")
    write_mnist(folder / "mnist")
    write_cifar(folder / "cifar10", each=30)
    write_arena(folder)
    write_ptb(folder / "ptb", lines=(400, 70, 70))
    write_text(folder / "text.txt", lines=590)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMSWEEP_DATA", str(folder))
        yield


class _MeasureSuite(MeasureSuite):
    @pytest.mark.more
    def test_a_report_says_it_everywhere(self, tmp_path: Path) -> None:
        super().test_a_report_says_it_everywhere(tmp_path)


@pytest.mark.more
class _AnalysisSuite(AnalysisSuite):
    pass


STUDIES = {
    "time_to_verdict": {
        "name": "decided",
        "task": {"name": "linear_functional", "kernel": "exponential", "horizon": 8},
        "model": {"name": "diagonal_rnn", "activation": "linear", "parameterization": "exp"},
        "training": {"seeds": 5, "steps": 300, "batch_size": 16, "validation_size": 16, "validate_every": 100},
        "perturbation": {"balls": ["recurrent"], "starts": 1, "ascent_steps": 1, "radii": {"count": 4}},
        "grid": {"model.width": [2, 3]},
        "decide": {"max_trials": 8},
    },
    "mixture": {
        "name": "mixed",
        "task": {"name": "mqar", "horizon": 8, "pairs": 2, "vocabulary": 8},
        "model": {"name": "residual_stack", "layers": 2, "width": 4, "features": 4},
        "training": {"seeds": 2, "steps": 3, "batch_size": 4, "validation_size": 4, "validate_every": 3},
        "perturbation": {"balls": []},
        "grid": {"model.units": [["gru"], ["gru", "attention"], ["attention", "gru"], ["attention"]]},
    },
}
"""Of analyses to which the usual study gives nothing to say."""


for _name in registry.names(registry.TASK):
    globals()[f"TestTask_{_name}"] = type(f"TestTask_{_name}", (TaskSuite,), {"task": _name})
for _name in registry.names(registry.MODEL):
    globals()[f"TestModel_{_name}"] = type(
        f"TestModel_{_name}", (ModelSuite,), {"model": _name, "config": usual_model(_name)}
    )
for _name in registry.names(registry.UNIT):
    _suite = OnlineUnitSuite if _name in online_units() else UnitSuite
    globals()[f"TestUnit_{_name}"] = type(f"TestUnit_{_name}", (_suite,), {"unit": _name, "config": usual_unit(_name)})
for _name in registry.names(registry.RULE):
    globals()[f"TestRule_{_name}"] = type(f"TestRule_{_name}", (RuleSuite,), {"rule": _name})
# The defaults of a flat measure ask for nothing: its own tests say what is measured.
for _name in (name for name in registry.names(registry.MEASURE) if not registry.get(registry.MEASURE, name).is_flat):
    globals()[f"TestMeasure_{_name}"] = type(f"TestMeasure_{_name}", (_MeasureSuite,), {"measure": _name})
for _name in registry.names(registry.ANALYSIS):
    _own = {"analysis": _name} | ({"study": STUDIES[_name]} if _name in STUDIES else {})
    globals()[f"TestAnalysis_{_name}"] = type(f"TestAnalysis_{_name}", (_AnalysisSuite,), _own)
del (
    AnalysisSuite,
    MeasureSuite,
    _AnalysisSuite,
    _MeasureSuite,
    TaskSuite,
    ModelSuite,
    OnlineUnitSuite,
    RuleSuite,
    UnitSuite,
    _suite,
)  # pytest would collect the bare suites too
