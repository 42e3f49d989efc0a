"""The models in JAX, with which the benchmarks compare, compute what ours compute."""

from __future__ import annotations

import sys

import pytest

from benchmarks import harness
from benchmarks.steps import peers_jax
from benchmarks.steps.product import Pack
from memsweep import registry


@pytest.mark.more
@pytest.mark.parametrize(("kind", "way"), [(kind, way) for kind, ways in peers_jax.WAYS.items() for way in ways])
def test_a_model_in_jax_has_our_losses_gradients_and_steps(kind, way):
    if not peers_jax.installed():
        pytest.skip("needs JAX: pip install -e '.[bench]'")
    registry.discover(harness.OUT.parents[1])
    config = peers_jax.trial(peers_jax.model_of(kind, 4), 12, 5, 3 if kind in peers_jax.DIAGONAL else 1, "float64")
    pack = Pack.of(config)
    peers_jax.compare(pack, peers_jax.JaxTraining(pack, kind, way))
    behind = peers_jax.JaxTraining(Pack.of(config), kind, way)  # by the steps that were compared
    with pytest.raises(AssertionError, match="not close"):
        peers_jax.compare(pack, behind)


def test_without_jax_the_benchmark_says_how_to_install_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "jax", None)
    peers_jax.run(harness.Options(quick=True, out=tmp_path))
    assert "pip install -e '.[bench]'" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
