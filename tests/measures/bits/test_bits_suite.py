"""Bits and number formats, held by the suite of measures; a flat measure stands beside the fields of its section."""

from __future__ import annotations

import pytest

from memsweep.config.core.build import config_from
from memsweep.config.core.reflect import keys, value_of
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.trial import PerturbationConfig
from memsweep.errors import ConfigError
from memsweep.measures.bits import Bits
from memsweep.measures.bits.kinds import ROUNDINGS
from memsweep.testing import MeasureSuite
from paths import ROOT

ASKED = ("fixed_recurrent", "stochastic_weights", "fixed_states", "formats_weights")


class TestBits(MeasureSuite):
    measure = "bits"
    config = Bits.Config(roundings=ASKED, bits=(2, 4, 8))


def perturbation(**fields: object) -> PerturbationConfig:
    built: PerturbationConfig = config_from(PerturbationConfig, fields, "a test")
    return built


def test_a_flat_measure_is_there_where_a_field_of_it_is_not_at_its_default() -> None:
    asked = perturbation(roundings=["fixed_states"])
    assert asked.asked_measures == (Bits.Config(roundings=("fixed_states",)),)
    plain = perturbation(roundings=[], bits=[*range(1, 17)])
    assert plain == PerturbationConfig()
    for each in (asked, plain, perturbation(bits=[1, 2])):
        assert perturbation(**to_dict(each)) == each
        assert [value_of(each, keys(PerturbationConfig)[key]) for key in ("roundings", "bits")] == [
            tuple(to_dict(each)[key]) for key in ("roundings", "bits")
        ]


def test_all_problems_of_a_flat_measure_are_said_beside_those_of_its_section() -> None:
    with pytest.raises(ConfigError) as refused:
        perturbation(balls=["all", "all"], roundings=["fixed_states"], bits=[3])
    assert "balls has a value twice: all, all" in str(refused.value)
    assert "bits must have two values or more for a curve, got 3" in str(refused.value)


@pytest.mark.parametrize("name", ["fixed_states", "certified_weights", "feedback_states"])
def test_integers_have_two_bits_or_more(name: str) -> None:
    """The usual list, which begins with one significant bit, has those from two on."""
    with pytest.raises(ConfigError, match=f"symmetric integers of {name} have 2 bits"):
        perturbation(roundings=["float_weights", name], bits=[1, 4])
    with pytest.raises(ConfigError, match="at least 2"):
        perturbation(capacity={"bits": [1]})
    assert ROUNDINGS[name].bits_of(value_of(perturbation(roundings=[name]), keys(PerturbationConfig)["bits"])) == [
        *range(2, 17)
    ]
    assert value_of(perturbation(roundings=["float_weights"], bits=[1, 4]), keys(PerturbationConfig)["bits"]) == (1, 4)


def test_no_file_of_the_core_names_a_rounding() -> None:
    engine = ROOT / "platform" / "memsweep"
    texts = {path: path.read_text("utf-8") for path in engine.rglob("*.py") if engine / "measures" not in path.parents}
    named = {str(path) for path, text in texts.items() for word in (".roundings", *Bits.curves) if word in text}
    assert not named, f"these name a rounding: {sorted(named)}"
