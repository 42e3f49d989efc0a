"""Learning rules: gradients that are known by hand, or equal to backpropagation through time where theory says so."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.rules.small_stacks import Case, case, fits, flat, forward_rules, from_unit, relative, unit_config
from benchmarks.rules.stepping import Stepping, with_traces
from memsweep import registry
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.models.deep.unit import OnlineUnit, Parts, Recurrence
from memsweep.models.deep.unit_lru import LRUUnit
from memsweep.rules.base import learning, online_units
from memsweep.rules.batched import Batched, learning_by

EXACT = 1e-10
MIXINGS = ("full_glu", "half_glu1", "half_glu2", "gelu", "none")
LRU = LRUUnit.Config()
LAYERS = ("s6", "ssd", "min_gru", "min_lstm", "hgrn", "rg_lru")
"""Units whose whole layer is one compiled call under ``bptt``."""
FULL_REC = ("online_full_rec", "online_full_rec_simple_b")


def rule(name: str) -> Any:
    return registry.get(registry.RULE, name)()


def of_batch(name: str, unit: OnlineUnit, parts: Parts, x_NBTF: Tensor) -> Tensor:
    """States of a whole sequence."""
    return Batched(rule(name)).states(0, unit, parts, x_NBTF) if rule(name).forward else unit.states(parts, x_NBTF)


def of_steps(name: str, unit: OnlineUnit, parts: Parts, x_NBTF: Tensor) -> Tensor:
    """The same states, one after the other."""
    recurrence = Stepping(rule(name))
    return torch.cat([recurrence.states(0, unit, parts, x_NBTF[:, :, t : t + 1]) for t in range(x_NBTF.shape[2])], 2)


def both(*names: str) -> list[Any]:
    return [pytest.param(name, how, id=f"{name}-{how.__name__}") for name in names for how in (of_batch, of_steps)]


TOY = {
    # by hand, with delta = (2+i, 8+4i, 15+7.5i) and states 2+2i, 5+5i, 8.5+8.5i: eigenvalue, gain, encoder
    "online_full": (53 + 159j, 85.75, 85.75 + 42.875j),
    "online_snap1": (53 + 159j, 85.75, 85.75 + 42.875j),
    "online_full_rec": (53 + 159j, 85.75, 63 + 31.5j),
    "online_full_rec_simple_b": (53 + 159j, 85.75, 63 + 31.5j),
    "online_truncated": (45.5 + 136.5j, 63.0, 63 + 31.5j),
    "online_spatial": (0j, 63.0, 63 + 31.5j),
}


@pytest.mark.parametrize(("name", "how"), [*both(*TOY), pytest.param("bptt", of_batch, id="bptt")])
def test_the_toy_comes_out_as_by_hand(name: str, how: Callable[..., Tensor]) -> None:
    """u = 1, 2, 3; B = 2+2i; C = 2+i; lambda = 1/2; gamma = 1; y = Re(C h); target 1; half the squared error, summed.

    The numbers by hand are holomorphic derivatives, dL/da - i dL/db; torch's gradients are their conjugates.
    """
    unit = LRUUnit(LRU, width=1, features=1)
    parts = {
        "eigenvalue": torch.tensor([[0.5 + 0j]], dtype=torch.complex128, requires_grad=True),
        "gain": torch.tensor([[1.0]], dtype=torch.float64, requires_grad=True),
        "encoder": torch.tensor([[[2.0 + 2j]]], dtype=torch.complex128, requires_grad=True),
    }
    u = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    states = how(name, unit, parts, u.reshape(1, 1, 3, 1)).flatten()
    (0.5 * (((2 + 1j) * states).real - 1.0).square().sum()).backward()
    expected = TOY["online_full" if name == "bptt" else name]
    for part, number in zip(parts.values(), expected, strict=True):
        assert part.grad is not None or number == 0  # a part that no gradient reaches has none
        found = 0j if part.grad is None else complex(part.grad)
        assert found.conjugate() == pytest.approx(number, abs=1e-12)
    # the layer below hears of every step's own error, Re(delta gamma B); under backpropagation of later ones as well
    below = [9.75, 15.5, 15.0] if name == "bptt" else [2.0, 8.0, 15.0]
    assert u.grad is not None
    assert u.grad.tolist() == pytest.approx(below, abs=1e-12)


def test_a_trace_is_a_derivative_in_torchs_convention() -> None:
    """h = e z, with the loss Re(w h^2) that is holomorphic in h: autograd's gradients by complex and by real z."""
    generator = torch.Generator().manual_seed(1)
    draw = functools.partial(torch.randn, dtype=torch.complex128, generator=generator)
    trace, w = draw(1, 4, 3, 2), draw(1, 4, 3)
    for part in (draw(1, 3, 2), draw(1, 3, 2).real.clone()):
        direct, traced = part.clone().requires_grad_(), part.clone().requires_grad_()
        states = (trace * direct.unsqueeze(1)).sum(-1)
        (w * states.square()).real.sum().backward()
        found = with_traces(states.detach(), {"z": traced}, {"z": trace})
        (w * found.square()).real.sum().backward()
        assert direct.grad is not None
        assert traced.grad is not None
        assert relative(traced.grad, direct.grad) < 1e-14


STACKS: dict[str, dict[str, Any]] = {
    **{
        f"{mixing}, {'pre' if pre else 'post'}norm": {"mixing": mixing, "prenorm": pre}
        for mixing in MIXINGS
        for pre in (True, False)
    },
    "no norm": {"norm": "none"},
    "no residual": {"residual": False},
    "hidden readout": {"readout_width": 4},
    "running mean": {"pooling": "running_mean"},
    "no gain": {"unit": LRUUnit.Config(normalize=False)},
    "exact gain": {"unit": LRUUnit.Config(gamma="exact")},
}


def stack_of(layers: int, fields: dict[str, Any]) -> Case:
    return case(**{"unit": LRU, "replicas": 2, "layers": layers} | fields)


@pytest.mark.parametrize("fields", STACKS.values(), ids=STACKS)
def test_online_full_is_the_true_gradient_from_the_last_unit_on(fields: dict[str, Any]) -> None:
    for layers in (1, 2):
        stack = stack_of(layers, fields)
        true, found = stack.gradient("bptt"), stack.gradient("online_full")
        last = from_unit(stack, layers - 1)
        assert relative(flat(found, last), flat(true, last)) < EXACT
    assert relative(flat(found, stack.in_layer(0)), flat(true, stack.in_layer(0))) > 1e-3


@pytest.mark.parametrize("fields", STACKS.values(), ids=STACKS)
def test_online_full_is_the_true_gradient_of_every_unit_below_layers_without_memory(fields: dict[str, Any]) -> None:
    stack = stack_of(3, fields)
    for layer in (1, 2):
        stack.weights[f"nu_l{layer}"].fill_(7.0)  # exp(-exp(7)) is 0 in float64
    true, found = stack.gradient("bptt"), stack.gradient("online_full")
    names = from_unit(stack, 0)
    assert float(flat(true, stack.in_layer(0)).norm()) > 1e-3
    assert relative(flat(found, names), flat(true, names)) < EXACT


@pytest.mark.parametrize("name", FULL_REC)
def test_online_full_rec_carries_what_forgets_and_nothing_else(name: str) -> None:
    stack = case(LRU, replicas=2, layers=2)
    found, full, spatial = (stack.gradient(rule) for rule in (name, "online_full", "online_spatial"))
    for weight, gradient in found.items():
        carried = weight.startswith(("nu", "theta", "gamma_log"))
        assert relative(gradient, (full if carried else spatial)[weight]) < 1e-14, weight
    assert relative(full["encoder_re_l1"], spatial["encoder_re_l1"]) > 1e-3


def test_a_reservoir_learns_behind_its_last_layer_alone() -> None:
    stack = case(LRU, layers=2, readout_width=4)
    true, found = stack.gradient("bptt"), stack.gradient("online_reservoir")
    for name, gradient in found.items():
        learns = name.startswith(("hidden", "readout")) and "_l" not in name
        assert float(gradient.abs().max()) > 0.0 if learns else not gradient.any(), name
        assert relative(gradient, true[name]) < 1e-14 or not learns, name


@pytest.mark.parametrize("unit", online_units())
def test_snap_1_is_exact_where_a_steps_jacobian_is_its_diagonal(unit: str) -> None:
    stack = case(unit_config(unit), replicas=2, layers=1)
    dense = not registry.get(registry.UNIT, unit).elementwise
    names = from_unit(stack, 0)
    if dense:
        true, found = stack.gradient("bptt"), stack.gradient("online_snap1")
        assert relative(flat(found, names), flat(true, names)) > 1e-3
    for name, role in stack.model.roles(stack.model.config).items():
        if dense and role.axes == ("width", "width"):
            stack.weights[name] = torch.diag_embed(stack.weights[name].diagonal(dim1=-2, dim2=-1))
    true, found = stack.gradient("bptt"), stack.gradient("online_snap1")
    assert relative(flat(found, names), flat(true, names)) < EXACT


@pytest.mark.parametrize("unit", online_units())
def test_values_do_not_depend_on_the_rule(unit: str) -> None:
    stack = case(unit_config(unit), replicas=2, layers=2, pooling="running_mean")
    loss, outputs, _ = stack.batched("bptt")
    # one compiled call for a whole layer adds in another order
    rounding = {"rtol": 1e-13, "atol": 1e-14} if unit in LAYERS else {"rtol": 0.0, "atol": 0.0}
    for name in forward_rules():
        if fits(name, stack.model.config):
            found = stack.batched(name)
            torch.testing.assert_close(found[0], loss, **rounding)
            torch.testing.assert_close(found[1], outputs, **rounding)


def test_a_model_is_as_before_when_the_learning_ends_or_fails() -> None:
    model = case(LRU).model
    outer: Recurrence = Batched(rule("online_full"))
    with learning(model, outer):
        with pytest.raises(RuntimeError, match="on the way"), learning_by("online_spatial", model):
            raise RuntimeError("on the way")
        assert model.recurrence is outer
    assert type(model.recurrence) is Recurrence


@pytest.mark.parametrize(
    ("name", "config", "reason"),
    [
        ("online_full", ResidualStack.Config(unit=unit_config("rnn")), "every state feels all others"),
        ("online_spatial", ResidualStack.Config(unit=LRU, pooling="mean"), "use running_mean or none"),
        ("online_snap1", ResidualStack.Config(unit=LRU, norm="batch"), "use norm layer or none"),
        ("online_truncated", registry.get(registry.MODEL, "diagonal_rnn").Config(), "no recurrent unit"),
    ],
)
def test_a_rule_that_does_not_fit_is_refused_with_the_reason_and_those_that_do(
    name: str, config: Any, reason: str
) -> None:
    task = registry.get(registry.TASK, "copying_memory").Config()
    trial = TrialConfig(task=task, model=config, training=TrainingConfig(rule=name))
    (problem,) = trial.problems()
    assert reason in problem
    listed = problem.rsplit("Rules for this model: ", 1)[1].split(", ")
    assert "bptt" in listed
    assert name not in listed
    assert (
        all(fits(rule, config) for rule in listed) if isinstance(config, ResidualStack.Config) else listed == ["bptt"]
    )
