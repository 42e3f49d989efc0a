"""The compiled state-space layer beside the operations of torch that it stands for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from drawn_layers import MODELS, drawn_layer, found
from memsweep.models.deep.unit_ssm import HEADWISE, S6Unit, SSDUnit, StateSpaceUnit
from memsweep.models.parameterizations.maps import Direct
from memsweep.recurrence.selective.state_space import CHUNK, CompiledStateSpace

HORIZON = 2 * CHUNK + 5
SIZES: dict[str, tuple[Any, int, int, int]] = {
    "one state": (S6Unit.Config(states=1), 5, 3, 4),
    "three states, heads": (S6Unit.Config(states=3, head_dim=2), 12, 5, 19),
    "rates of heads": (S6Unit.Config(states=4, head_dim=2, decay=HEADWISE), 16, 9, 8),
    "growing states": (S6Unit.Config(states=6, parameterization=Direct.Config()), 18, 20, 17),
}
"""Config, width, features, sequences: more than a vector of them, fewer, and just one full."""
WIDE = (S6Unit.Config(states=16), 17 * 16, 50, 1)
"""Channels, features and maps that fill one vector and more, of any processor."""


def drawn(config: Any, width: int, features: int, batch: int, dtype: torch.dtype) -> tuple[S6Unit, list[Tensor]]:
    """A unit, and what ``drawn_layer`` draws for it."""
    unit = S6Unit(config, width, features)
    return unit, drawn_layer(unit, batch, HORIZON, dtype)


@pytest.mark.parametrize(
    ("dtype", "close"), [(torch.float64, 1e-13), (torch.float32, 3e-5)], ids=["float64", "float32"]
)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_it_is_torchs_operations_with_all_gradients(
    sizes: tuple[Any, int, int, int], dtype: torch.dtype, close: float
) -> None:
    unit, given = drawn(*sizes, dtype)
    assert CompiledStateSpace.fitting(given[-1]) is not None
    names = ["answers", *unit.roles(), "inputs"]
    for name, one, other in zip(
        names, found(S6Unit.run, unit, given), found(StateSpaceUnit.run, unit, given), strict=True
    ):
        size = other.abs().max().item()
        torch.testing.assert_close(one, other, rtol=0.0, atol=close * size, msg=name)


def test_a_replica_has_the_bits_that_it_has_alone_whatever_the_threads() -> None:
    unit, given = drawn(*SIZES["three states, heads"], torch.float32)
    together, threads = found(S6Unit.run, unit, given), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert all(map(torch.equal, found(S6Unit.run, unit, given), together))
    finally:
        torch.set_num_threads(threads)
    for model in range(MODELS):
        alone = found(S6Unit.run, unit, [each[model : model + 1] for each in given])
        assert all(torch.equal(one[0], all_of_them[model]) for one, all_of_them in zip(alone, together, strict=True))


@pytest.mark.parametrize("batch", [1, 2, 3, 8, 17, 20])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("sizes", [*SIZES.values(), WIDE], ids=[*SIZES, "whole vectors"])
def test_few_sequences_have_the_bits_that_they_have_among_others(
    sizes: tuple[Any, int, int, int], dtype: torch.dtype, batch: int
) -> None:
    """Few stand with their steps in the lanes, many with sequences; the others' answers count for no gradient here."""
    config, width, features, _ = sizes
    unit, given = drawn(config, width, features, -(-batch // 16) * 16, dtype)
    given[-1][:, batch:] = 0.0
    few = [*given[:-2], *(series[:, :batch].contiguous() for series in given[-2:])]
    names = ["answers", *unit.roles(), "inputs"]
    for name, one, other in zip(names, found(S6Unit.run, unit, few), found(S6Unit.run, unit, given), strict=True):
        own = other[:, :batch] if name in ("answers", "inputs") else other
        assert torch.equal(one, own), name


def test_answers_are_the_same_where_no_gradient_is_wanted() -> None:
    unit, given = drawn(*SIZES["one state"], torch.float64)
    with torch.no_grad():
        answers = unit.run(dict(zip(unit.roles(), given[:-2], strict=True)), given[-2])
    assert torch.equal(answers, found(S6Unit.run, unit, given)[0])


@pytest.mark.parametrize("bias", [-750.0, -30.0, -1e-3, 0.0, 19.9, 20.1, 750.0, float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_step_sizes_of_any_size(bias: float, dtype: torch.dtype) -> None:
    """From steps that change nothing to those that forget everything; NaN goes through, and tells of divergence."""
    unit, given = drawn(*SIZES["one state"], dtype)
    given[[*unit.roles()].index("bias_step")].fill_(bias)
    for one, other in zip(found(S6Unit.run, unit, given), found(StateSpaceUnit.run, unit, given), strict=True):
        assert torch.equal(one.isfinite(), other.isfinite())
        torch.testing.assert_close(
            one, other, rtol=1e-3 if dtype is torch.float32 else 1e-10, atol=1e-4, equal_nan=True
        )


@pytest.mark.parametrize("at_once", [True, False], ids=["one call", "matrix states"])
@pytest.mark.parametrize("discretization", ["euler", "exact"])
def test_heads_that_decay_as_a_whole(discretization: str, at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    config = SSDUnit.Config(head_dim=3, states=4, discretization=discretization)
    _, given = drawn(config, 24, 5, 9, torch.float64)
    if not at_once:
        monkeypatch.setattr(CompiledStateSpace, "fitting", lambda _: None)
    unit: Any = SSDUnit(config, 24, 5)
    for one, other in zip(found(SSDUnit.run, unit, given), found(StateSpaceUnit.run, unit, given), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-13 * other.abs().max().item())


@pytest.mark.parametrize("batch", [1, 3, 16])
def test_lanes_without_a_sequence_stay_out_of_the_gradients(batch: int) -> None:
    """Their inputs are zero: with a large bias and a rate below zero their states would overflow."""
    compiled = CompiledStateSpace.fitting(torch.empty(0, dtype=torch.float32))
    assert compiled is not None
    ones = {name: torch.ones(1, 1, 1) for name in ("input", "candidate", "output", "readout")}
    rest = {"step": torch.full((1, 1, 1), -40.0), "bias": torch.full((1, 1), 5.0), "skip": torch.ones(1, 1)}
    weights = {
        name: each.requires_grad_() for name, each in (ones | rest | {"rate": torch.full((1, 1), -20.0)}).items()
    }
    compiled.answers(torch.ones(1, batch, 5, 1), weights).sum().backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in weights.values())
