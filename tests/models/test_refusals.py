"""Settings that contradict one another are refused by a model's own Config, with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from memsweep import registry
from paths import ROOT

registry.discover(ROOT)
REFUSALS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("stable_ssm", {"state_size": 7}, ["state_size is 7, but states come in conjugate pairs"]),
    ("stable_ssm", {"dt_min": 0.2, "dt_max": 0.1}, ["dt_min (0.2) must be at most dt_max (0.1)"]),
    ("stable_ssm", {"initialization": "legs", "state_size": 5000}, ["legs takes at most 4096 states"]),
    ("dense_rnn", {"basis": "free"}, ["discretization is exact: use discretization euler, or basis orthogonal"]),
    ("dense_rnn", {"basis": "free", "discretization": "euler", "normalize": True}, ["normalize needs independent"]),
    ("ssm", {"basis": "free", "normalize": True}, ["discretization is exact", "set basis to diagonal"]),
    ("lru", {"r_min": 0.9, "r_max": 0.5}, ["r_min (0.9) must be at most r_max (0.5)"]),
    ("diagonal_rnn", {"normalization": "increment"}, ["normalization is increment, but normalize is off"]),
    ("lru", {"gamma": "trained", "normalize": False}, ["gamma is trained, but normalize is off"]),
    ("vanilla_rnn", {"dropout": 0.1}, ["dropout is 0.1, but it acts between layers, and layers is 1"]),
    ("nn_rnn", {"width": 5}, ["width is 5, but the modes of nn_rnn come in pairs: use an even width"]),
    ("published_rnn_orth", {"stair": "exp_alpha"}, ["or the model orthogonal_rnn"]),
    ("residual_stack", {"mixing": "none", "dropout": 0.1}, ["acts in the mixing of a layer, and mixing is none"]),
]


@pytest.mark.parametrize(("model", "fields", "words"), REFUSALS)
def test_a_contradiction_is_named(model: str, fields: dict[str, Any], words: list[str]) -> None:
    config = registry.get(registry.MODEL, model).Config
    assert not list(config().problems())
    found = list(config(**fields).problems())
    assert len(found) == len(words)
    assert all(word in sentence for word, sentence in zip(words, found, strict=True))
