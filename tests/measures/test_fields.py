"""Each measure is a field of ``perturbation``, though no class of the engine names it."""

from __future__ import annotations

import dataclasses

import pytest

from engine import trial
from memsweep import registry
from memsweep.config.schema.canonical import MISSING, plain_at, to_dict, trial_from_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.suggestion import shortest_form
from memsweep.sweep.planning.identity import identifying, without_later
from memsweep.sweep.tracking.run_content import parameters

NAMES = [name for name in registry.names(registry.MEASURE) if not registry.get(registry.MEASURE, name).is_flat]
"""Those that stand below their names: of a flat one, the fields stand in the section (``tests/measures/bits``)."""


def asking(*names: str) -> TrialConfig:
    plain = trial()
    asked = tuple(registry.get(registry.MEASURE, name).Config() for name in sorted(names))
    return dataclasses.replace(plain, perturbation=dataclasses.replace(plain.perturbation, asked_measures=asked))


@pytest.mark.parametrize("names", [(), *((name,) for name in NAMES), tuple(NAMES)])
def test_it_is_read_and_written_like_any_other(names: tuple[str, ...]) -> None:
    config = asking(*names)
    data = to_dict(config)
    assert {*NAMES} & {*data["perturbation"]} == {*names}
    assert trial_from_dict(data) == config
    assert trial_from_dict(shortest_form(config)) == config
    assert {*NAMES} & {*identifying(config)["perturbation"]} == {*names}
    assert {*NAMES} & {*without_later(data, config)["perturbation"]} == {*names}
    for name in NAMES:
        assert (plain_at(config, f"perturbation.{name}") is MISSING) is (name not in names)
    told = parameters(data, [f"perturbation.{name}.sequences" for name in NAMES])
    with_sequences = {name for name in names if "sequences" in data["perturbation"][name]}
    assert {path for path in told if path.endswith(".sequences")} == {
        f"perturbation.{name}.sequences" for name in with_sequences
    }
    assert len(with_sequences) >= len(names) - 1  # not a name without the field
