"""Stacks whose layers have units of several kinds: equal to their layers one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import noise, usual_unit
from memsweep.config.core.build import config_from
from memsweep.config.load.study import load_study
from memsweep.config.schema.canonical import flatten, to_dict, trial_from_dict
from memsweep.errors import ConfigError
from memsweep.models.base import Signature
from memsweep.models.deep.fused_stack import knows
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.models.deep.unit import unit_of_layer
from memsweep.rules.catalogue import OnlineTruncated
from memsweep.sweep.planning.cost import seconds
from memsweep.sweep.planning.identity import identifying
from memsweep.trial import run_trial
from paths import ROOT

SIGNATURE = Signature(inputs=2, outputs=3, horizon=7)
FILE = "tests/support/nets/mixer.py"
PLAIN = {"mixing": "none", "norm": "none"}


def config(*units: Any, **fields: Any) -> Any:
    sizes = {"width": 4, "features": 4, "layers": 4, "units": list(units)}
    return config_from(ResidualStack.Config, sizes | fields, "a test")


def built(chosen: Any) -> tuple[ResidualStack, dict[str, Tensor]]:
    model = ResidualStack(chosen, SIGNATURE).eval()
    drawn = [ResidualStack.initial(chosen, SIGNATURE, np.random.default_rng(seed)) for seed in range(2)]
    return model, {name: torch.from_numpy(np.stack([each[name] for each in drawn])) for name in drawn[0]}


def test_units_repeat_to_the_depth_one_after_the_other() -> None:
    model, weights = built(config("gru", "attention", {"factory": f"{FILE}:Mixer"}, **PLAIN))
    inputs = noise(3, 7, 2)
    x = inputs @ weights["encoder_weight"].mT.unsqueeze(1) + weights["encoder_bias"][:, None, None]
    for layer, kind in enumerate(("gru", "attention", "module", "gru")):
        unit = unit_of_layer(model.config, layer)
        assert unit.config.name == kind
        own = {name.removesuffix(f"_l{layer}"): w for name, w in weights.items() if name.endswith(f"_l{layer}")}
        x = x + unit.run(own, x)
    expected = x @ weights["readout_weight"].mT.unsqueeze(1) + weights["readout_bias"][:, None, None]
    torch.testing.assert_close(model.outputs(weights, inputs), expected, rtol=1e-12, atol=1e-12)


def test_several_of_one_unit_are_that_unit() -> None:
    """A stack of ``units: [gru]`` has the weights and, but for rounding, the outputs of ``unit: gru``."""
    mixed, weights = built(config("gru"))
    alike = ResidualStack.Config(width=4, features=4, layers=4, unit=usual_unit("gru"))
    plain, same = built(alike)
    assert knows(alike, 7)
    assert not knows(mixed.config, 7)  # the compiled stack has one unit
    assert all(torch.equal(weights[name], same[name]) for name in same)
    inputs = noise(3, 7, 2)
    torch.testing.assert_close(mixed.outputs(weights, inputs), plain.outputs(same, inputs), rtol=1e-9, atol=1e-10)


def test_a_linear_hybrid_is_its_response_and_stays_so_when_balanced() -> None:
    chosen = config("lru", {"name": "lru", "gamma": "exact"}, **PLAIN)
    model, weights = built(chosen)
    assert model.traits(chosen).linear
    assert not model.traits(config("lru", "gru", **PLAIN)).linear
    inputs = noise(3, 7, 2)
    outputs, balanced = model.outputs(weights, inputs), model.balanced(weights)
    torch.testing.assert_close(model.outputs(balanced, inputs), outputs, rtol=1e-9, atol=1e-10)
    eigenvalues = model.eigenvalues(weights)
    assert eigenvalues is not None
    assert eigenvalues.shape == (2, 16)


@pytest.mark.parametrize(
    ("units", "fields", "problem"),
    [
        ([], {}, "units is empty"),
        (["gru"] * 5, {}, "units has 5 entries, one for each layer in turn, but layers is 4: set layers to 5 or more"),
        (["gru"], {"unit": "rnn"}, "units stands in place of unit, and unit is rnn: leave one of them out"),
        (["gru", "attention"], {"width": 6}, "the unit attention needs an even number of channels in each of its 2"),
        (["grue"], {}, r"units\[0\]: unit 'grue' is not registered. Did you mean 'gru'"),
        ([{"name": "gru", "heads": 2}], {}, r"units\[0\]\.heads: the unit gru has no field 'heads'"),
        ("gru", {}, "units: must be a list"),
    ],
)
def test_what_makes_no_hybrid_is_refused(units: Any, fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config_from(ResidualStack.Config, {"width": 4, "features": 4, "layers": 4, "units": units} | fields, "a test")


def test_rules_that_go_forward_in_time_refuse_a_hybrid() -> None:
    refusal = OnlineTruncated.refusal(ResidualStack, config("gru", "lru"))
    assert refusal is not None
    assert "its layers have units of their own" in refusal


def study(folder: Path) -> Any:
    file = folder / "study.yaml"
    file.write_text(
        "task: {name: mqar, horizon: 8, pairs: 2, vocabulary: 8}\n"
        "model: {name: residual_stack, layers: 2, width: 4, features: 4}\n"
        "training: {seeds: 2, steps: 3, batch_size: 4, validation_size: 4, validate_every: 3}\n"
        "perturbation: {balls: [all], radii: {count: 2}, starts: 0, ascent_steps: 1, test_size: 4}\n"
        "grid: {model.units: [[gru], [gru, attention], [attention, gru]]}\n"
    )
    return load_study(str(file), (), ROOT)


def test_ratio_and_position_are_an_axis_and_run(tmp_path: Path) -> None:
    rows = study(tmp_path).rows
    texts = [flatten(to_dict(row))["model.units"] for row in rows]
    assert texts == ["gru", "gru, attention", "attention, gru"]
    assert trial_from_dict(to_dict(rows[1])) == rows[1]
    assert seconds(rows[1:2]) > 0
    errors = run_trial(rows[1]).tables["replicas"]["error"]
    assert bool(np.isfinite(errors).all())


def test_a_text_of_units_says_what_is_no_default() -> None:
    units = ["gated_delta_net", "gated_delta_net", {"name": "delta_net", "largest_beta": 2}]
    units += [{"factory": "my_nets:Mixer", "arguments": {"heads": 2}}]
    flat = flatten({"model": to_dict(config(*units))})
    assert flat["model.units"] == (
        "2 × gated_delta_net, delta_net (largest_beta 2.0), my_nets:Mixer (arguments {'heads': 2})"
    )


def test_units_at_their_default_leave_identities_as_they_were() -> None:
    """The field came later: a trial that does without it has no word of it in its identity."""
    assert "units" not in identifying(ResidualStack.Config())
    assert identifying(config("gru"))["units"]
