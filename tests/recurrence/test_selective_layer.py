"""The compiled layers with gates of the input, beside the operations of torch that they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from drawn_layers import MODELS, drawn_layer, found
from memsweep.models.deep.unit_selective import DECAY, HGRNUnit, MinGRUUnit, MinLSTMUnit, RGLRUUnit, SelectiveUnit
from memsweep.recurrence.selective.gated import CHUNK, CompiledGated

UNITS = (MinGRUUnit, MinLSTMUnit, HGRNUnit, RGLRUUnit)
SIZES = {
    "narrow": (5, 3, 4, CHUNK + 5),
    "half a vector": (8, 8, 5, 2 * CHUNK + 9),
    "one step": (8, 8, 7, 1),
    "one of each": (1, 1, 1, CHUNK + 1),
    "chunks of several sequences": (33, 20, 17, 37),
    "more features than units": (16, 70, 2, CHUNK),
    "several panels": (64, 64, 3, 2 * CHUNK + 9),
}
"""Width, features, sequences, horizon."""


def drawn(unit_class: Any, sizes: tuple[int, int, int, int], dtype: torch.dtype) -> tuple[SelectiveUnit, list[Tensor]]:
    """A unit, and what ``drawn_layer`` draws for it."""
    width, features, batch, horizon = sizes
    unit = unit_class(unit_class.Config(), width, features)
    return unit, drawn_layer(unit, batch, horizon, dtype)


@pytest.mark.parametrize("unit_class", UNITS)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_it_is_torchs_operations_with_all_gradients(unit_class: Any, sizes: tuple[int, int, int, int]) -> None:
    for dtype, close in ((torch.float64, 1e-13), (torch.float32, 3e-5)):
        unit, given = drawn(unit_class, sizes, dtype)
        assert CompiledGated.fitting(given[-1]) is not None
        ours, torchs = found(unit_class.run, unit, given), found(SelectiveUnit.run, unit, given)
        for name, one, other in zip(["answers", *unit.roles(), "inputs"], ours, torchs, strict=True):
            torch.testing.assert_close(one, other, rtol=0.0, atol=close * other.abs().max().item(), msg=name)


@pytest.mark.parametrize("unit_class", UNITS)
def test_its_gradients_are_those_of_finite_differences(unit_class: Any) -> None:
    unit, given = drawn(unit_class, (3, 2, 2, 5), torch.float64)
    names = [*unit.roles()]
    live = [each[:1].clone().requires_grad_() for each in given[:-1]]
    assert torch.autograd.gradcheck(lambda *own: unit.run(dict(zip(names, own[:-1], strict=True)), own[-1]), live)


@pytest.mark.parametrize("unit_class", UNITS)
def test_a_replica_has_the_bits_that_it_has_alone_whatever_the_threads(unit_class: Any) -> None:
    unit, given = drawn(unit_class, SIZES["chunks of several sequences"], torch.float32)
    together, threads = found(unit_class.run, unit, given), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert all(map(torch.equal, found(unit_class.run, unit, given), together))
    finally:
        torch.set_num_threads(threads)
    for model in range(MODELS):
        alone = found(unit_class.run, unit, [each[model : model + 1] for each in given])
        assert all(torch.equal(one[0], all_of_them[model]) for one, all_of_them in zip(alone, together, strict=True))
    with torch.no_grad():
        answers = unit.run(dict(zip(unit.roles(), given[:-2], strict=True)), given[-2])
    assert torch.equal(answers, together[0])


@pytest.mark.parametrize("width", [1, 5, 8, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("unit_class", UNITS)
def test_units_have_the_bits_that_they_have_beside_units_without_weights(
    unit_class: Any, dtype: torch.dtype, width: int
) -> None:
    """So where the gates of a narrow layer stand in a vector does not count."""
    sizes = (6, 3, CHUNK + 7)
    unit, given = drawn(unit_class, (width, *sizes), dtype)
    alone = found(unit_class.run, unit, given)
    for wider in (32, 64):
        silent = (0, wider - width)
        beside = {name: (0, 0, *silent) if "encoder" in name else silent for name in unit.roles()} | {"skip": (0, 0)}
        padded = [torch.nn.functional.pad(each, beside[name]) for name, each in zip(unit.roles(), given, strict=False)]
        whole, _ = drawn(unit_class, (wider, *sizes), dtype)
        answers, *gradients = found(unit_class.run, whole, [*padded, *given[-2:]])
        assert torch.equal(answers, alone[0])
        for name, one, other in zip([*unit.roles(), "inputs"], gradients, alone[1:], strict=True):
            assert torch.equal(one[tuple(map(slice, other.shape))], other), name


@pytest.mark.parametrize("bias", [-750.0, -30.0, 0.0, 30.0, 750.0, float("nan")])
@pytest.mark.parametrize("unit_class", UNITS)
def test_gates_that_are_open_or_shut(unit_class: Any, bias: float) -> None:
    """NaN goes through, and tells of divergence."""
    unit, given = drawn(unit_class, SIZES["narrow"], torch.float64)
    given[[*unit.roles()].index(f"bias_{unit.gates[0]}")].fill_(bias)
    for one, other in zip(found(unit_class.run, unit, given), found(SelectiveUnit.run, unit, given), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("decay", [-300.0, -20.5, -19.5, 30.0])
@pytest.mark.parametrize("unit_class", [HGRNUnit, RGLRUUnit])
def test_decays_of_any_size(unit_class: Any, decay: float) -> None:
    unit, given = drawn(unit_class, SIZES["narrow"], torch.float64)
    given[[*unit.roles()].index(DECAY)].fill_(decay)
    for one, other in zip(found(unit_class.run, unit, given), found(SelectiveUnit.run, unit, given), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("unit_class", UNITS)
def test_what_does_not_fit_is_refused_before_it_is_read(unit_class: Any) -> None:
    unit, given = drawn(unit_class, SIZES["narrow"], torch.float64)
    weights, x_NBTF = dict(zip(unit.roles(), given[:-2], strict=True)), given[-2]
    for odd in ({name: each[:1] for name, each in weights.items()}, {**weights, "skip": weights["skip"].float()}):
        with pytest.raises(ValueError, match="must have"):
            unit.run(odd, x_NBTF)
    with pytest.raises(ValueError, match="must have the shape"):
        unit.run(weights, torch.cat([x_NBTF, x_NBTF], -1))


@pytest.mark.parametrize("unit_class", UNITS)
def test_no_sequences_have_zero_gradients(unit_class: Any) -> None:
    unit, given = drawn(unit_class, (5, 3, 1, 4), torch.float64)
    answers, *gradients = found(unit_class.run, unit, [*given[:-2], *(each[:, :0] for each in given[-2:])])
    assert not answers.numel()
    assert not any(each.any() for each in gradients)


def test_a_class_derived_from_a_unit_computes_what_it_says() -> None:
    class Slower(MinGRUUnit):
        def coefficients(self, drives: Any) -> tuple[Tensor, Tensor]:
            decay, added = super().coefficients(drives)
            return decay.sqrt(), added

    unit, given = drawn(Slower, SIZES["narrow"], torch.float64)
    ours, torchs = found(Slower.run, unit, given), found(SelectiveUnit.run, unit, given)
    assert all(map(torch.equal, ours, torchs))
    assert not torch.equal(
        ours[0], found(MinGRUUnit.run, drawn(MinGRUUnit, SIZES["narrow"], torch.float64)[0], given)[0]
    )
