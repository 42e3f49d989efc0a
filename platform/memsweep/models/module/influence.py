"""The influence of parameters over time: one is recurrent where its effect is carried over time.

The response of a module to a small push of one input is followed over the lags behind it. A parameter of the recurrence
acts on it once more with each step, so that its effect grows with the lag, relative to the response. The effect of an
encoder or a readout, which act once, does not. The *growth* of a parameter is its relative effect at a long lag over
that soon after the push. Effects are lengths of Jacobians of all outputs, so that states that cancel one another in an
output make none large. Modes in parallel cancel one another soon after the push, and the slowest of them is left alone
later, so that the effect of their encoder grows as well. Where the response is linear in a parameter of such a growth,
it is taken to be 1. Where the growth is clear, it decides a role that would be guessed.

Letters: B batch, T time, I inputs, O outputs.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from memsweep.errors import ModuleError
from memsweep.models.base import Part, Signature
from memsweep.models.contracts import default_dtype
from memsweep.models.module.config import ModuleConfig, RolesConfig
from memsweep.models.module.factory import Factory, looked_at, outputs_of, probe_inputs, resolve, to_dtype
from memsweep.models.module.roles import Described, with_part

Build = Callable[[ModuleConfig, Signature, int], nn.Module]
"""Makes a module of a config, of the sizes of a task, and of a seed."""
CARRIED = 2.5
"""Growth from which a parameter is said to be carried over time."""
ACTS_ONCE = 1.5
"""Growth up to which a parameter is said to act once."""
MOST = 1000.0
"""A growth that is shown; that of an effect that begins later has no limit."""
SIZE = 16
"""Inputs, outputs and width at which influence is measured: a parameter has one role in all trials of a study."""
SEEDS = 3
"""Initializations of a median."""
LEAST_LAG = 8
"""A response that is gone before says nothing."""
_START, _LONGEST_LAG, _PUSH = 4, 40, 1e-4
_SOON, _LATE = (1, 2, 3), 3
"""Lags soon after the push, and the number of the last ones."""
_DRAWS = 4
"""Random directions of outputs, by which the length of a Jacobian is estimated."""
_SEEN = 1e-6
"""Share of the largest response, or of the largest effect, that rounding leaves alone, in float64."""
_HALF, _CURVED, _MOVED = 0.5, 0.02, 0.2
"""Half the width of the scales of a parameter, and shares of the response: the most of its second difference by the
scale where it is linear in the parameter, the least of its first one, below which that says nothing."""
_FAINT, _ADDED = 1e-3, 0.1
"""Size of inputs at which a bias keeps its effect, or at least this share of it, and a factor loses its own."""
_READS, _BETWEEN = "reads the inputs", "between encoder and readout"
"""Reasons of guesses (``memsweep.models.module.roles``)."""


def growths(module: nn.Module, inputs: Tensor) -> dict[str, float]:
    """The growth of each parameter by name; 0 where it acts at lag 0 alone, nan where it has no effect on the response.

    Args:
        module: in evaluation, in float64.
        inputs: ``[B, T, I]`` numbers, or ids ``[B, T]``.

    Returns:
        Empty where no response lasts for ``LEAST_LAG`` steps.
    """
    named = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    response = _response(module, inputs)
    sizes = response.detach().square().sum((0, 2)).sqrt()
    seen = (sizes > _SEEN * sizes.max()).nonzero().flatten()
    late = min(int(seen[-1]) if len(seen) else 0, _LONGEST_LAG)
    if not named or late < LEAST_LAG or not response.requires_grad:
        return {}
    windows = (0,), _SOON, tuple(range(late - _LATE + 1, late + 1))
    now, soon, far = (_effects(response[:, lags], named) for lags in windows)
    return {name: _growth(now[name], soon[name], far[name]) for name in named}


@torch.no_grad()
def _is_linear_in(weight: Tensor, module: nn.Module, inputs: Tensor) -> bool:
    """Whether the response, at each lag from 1 to the longest, is linear in the scale of a parameter.

    That is so of an encoder and a readout of states. It is not of what acts once more with each step. Inputs are faint,
    so that what stands around them is linear as well.
    """
    given, own, responses = inputs * _FAINT if inputs.is_floating_point() else inputs, weight.clone(), list[Tensor]()
    try:
        for scale in (1.0 - _HALF, 1.0, 1.0 + _HALF):
            weight.copy_(own * scale)
            responses.append(_response(module, given)[:, 1 : _LONGEST_LAG + 1])
    except Exception:  # code of others may refuse such a weight
        return False
    finally:
        weight.copy_(own)
    low, usual, high = responses
    first, second, size = (each.square().sum((0, 2)).sqrt() for each in (high - low, high + low - 2.0 * usual, usual))
    seen = size > _SEEN * size.max()
    return bool((second <= _CURVED * size)[seen].all() and (first / size)[seen].mean() >= _MOVED)


def _growth(now: float, soon: float, far: float) -> float:
    if soon:
        return min(far / soon, MOST)
    return MOST if far else 0.0 if now else math.nan


def _response(module: nn.Module, inputs: Tensor) -> Tensor:
    """The response ``[B, lags, O]`` to a push of one input."""
    pushed = inputs.clone()
    if inputs.is_floating_point():
        pushed[:, _START] += _PUSH
    else:
        pushed[:, _START] = (pushed[:, _START] + 1) % (int(inputs.max()) + 1)
    difference = torch.as_tensor(outputs_of(module(pushed)) - outputs_of(module(inputs)))
    return difference[:, _START:].flatten(2)


def _effects(response: Tensor, named: Mapping[str, Tensor]) -> dict[str, float]:
    """The length of the Jacobian of a response, relative to the response, by parameter; 0 where it is rounding."""
    size, lengths = float(response.detach().norm()), _lengths(response, named)
    most = max(lengths.values())
    return {name: each / size if size and each > _SEEN * most else 0.0 for name, each in lengths.items()}


def _lengths(of: Tensor, named: Mapping[str, Tensor]) -> dict[str, float]:
    """The length of the Jacobian of a tensor by parameter, estimated."""
    draws = torch.Generator().manual_seed(0)
    squares = dict.fromkeys(named, 0.0)
    for _ in range(_DRAWS):
        along = (of * torch.randn(of.shape, generator=draws, dtype=of.dtype)).sum()
        gradients = torch.autograd.grad(along, list(named.values()), retain_graph=True, allow_unused=True)
        for name, gradient in zip(named, gradients, strict=True):
            squares[name] += 0.0 if gradient is None else float(gradient.abs().square().sum())
    return {name: math.sqrt(each) for name, each in squares.items()}


def carried_over_time(config: ModuleConfig, signature: Signature, build: Build) -> Mapping[str, float]:
    """The growth of each parameter: near 1 for one that acts once, several where it is carried over time.

    The median over some initializations, at sizes of its own; where the module cannot have these, at inputs and outputs
    of the task. Empty where responses are too short, or where it can have neither.
    """
    return _measured(config, signature, build).growth


def by_influence(
    config: ModuleConfig, signature: Signature, described: Sequence[Described], build: Build
) -> list[Described]:
    """The same parameters, with roles by their influence where that is clear, and where their role would be guessed.

    What is carried over time is recurrent, unless it reads the inputs themselves, or is added to something: a bias
    acts on how a state saturates. A matrix between encoder and readout that acts once is one of these, where something
    else is carried: attention and convolutions hold a memory without, and all that is guessed of them stays.
    """
    open_ = [each for each in described if each.guessed and each.reason != _READS]
    if all(each.role.part is Part.RECURRENT and each.reason != _BETWEEN for each in open_):
        return [*described]
    measured = _measured(config, signature, build)
    growth = measured.growth
    recurrent = [each for each in described if each.role.part is Part.RECURRENT]
    carried = {each.name for each in recurrent if growth.get(each.name, 0.0) > CARRIED}
    carried |= {each.name for each in open_ if growth.get(each.name, 0.0) > CARRIED} - measured.added
    once = {each.name for each in open_ if each.reason == _BETWEEN and growth.get(each.name, CARRIED) < ACTS_ONCE}
    places = dict.fromkeys(once if carried else (), "behind")
    places |= dict.fromkeys(places.keys() & measured.before(carried), "before")
    places |= {name: "beside" for name in places if not growth[name]}
    return [_decided(each, carried, places) for each in described]


def influence_decides(config: ModuleConfig, signature: Signature, described: Sequence[Described], build: Build) -> bool:
    """Whether the influence of a parameter is clear, and says another role than a guess."""
    return by_influence(config, signature, described, build) != [*described]


def _decided(each: Described, carried: set[str], places: Mapping[str, str]) -> Described:
    if each.name in carried and each.role.part is not Part.RECURRENT:
        return with_part(each, Part.RECURRENT, "its effect grows with the lag")
    if place := places.get(each.name):
        part = Part.ENCODER if place == "before" else Part.READOUT
        return with_part(each, part, f"acts once, {place} what is carried over time")
    return each


@dataclass(frozen=True)
class _Measured:
    """The influence of the parameters of a module, as measured.

    Attributes:
        growth: by name.
        met: which parameters have met in something that the inputs are part of, and is part of the last outputs.
        added: names of the summands, such as biases.
    """

    growth: Mapping[str, float]
    met: frozenset[frozenset[str]]
    added: frozenset[str]

    def before(self, carried: set[str]) -> set[str]:
        """Names of the parameters that the inputs meet before anything that is carried over time."""
        return {name for names in self.met if not names & carried for name in names}


def _measured(config: ModuleConfig, signature: Signature, build: Build) -> _Measured:
    same = replace(config, width=SIZE, roles=RolesConfig(), recurrent_group=(), input_group=(), optim_attribute=False)
    for inputs, outputs in ((SIZE, SIZE), (signature.inputs, signature.outputs)):
        try:
            return _measure(same, Signature(inputs, outputs, _START + _LONGEST_LAG + 1), build, resolve(config.factory))
        except ModuleError:  # it has sizes of its own
            continue
    return _Measured({}, frozenset(), frozenset())


@functools.lru_cache(maxsize=64)
def _measure(config: ModuleConfig, signature: Signature, build: Build, factory: Factory) -> _Measured:
    inputs = probe_inputs(config.sizes(signature), config.tokens, batch=4, dtype=torch.float64)
    found: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        module = build(config, signature, seed).eval()
        with looked_at(config.factory, factory.file), default_dtype(torch.float64):
            to_dtype(module, torch.float64)
            for name, each in growths(module, inputs).items():
                found.setdefault(name, []).append(each)
    always = {name: each for name, each in found.items() if len(each) == SEEDS and not any(map(math.isnan, each))}
    growth, named = {name: median(each) for name, each in always.items()}, dict(module.named_parameters())
    with looked_at(config.factory, factory.file), default_dtype(torch.float64):
        large = (name for name, each in growth.items() if each > CARRIED)
        once = [name for name in large if _is_linear_in(named[name], module, inputs)]
        met, added = _met(module, inputs), _added(module, inputs)
    return _Measured(growth | dict.fromkeys(once, 1.0), met, added)


def _added(module: nn.Module, inputs: Tensor) -> frozenset[str]:
    """See ``_Measured``: they act on faint inputs as well. The module has no biases, by their names, after it."""
    named = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    usual = _lengths(torch.as_tensor(outputs_of(module(inputs))), named)
    with torch.no_grad():
        for name, weight in named.items():
            weight.mul_(0.0 if "bias" in name.rpartition(".")[2] else 1.0)
        for table in (part.weight for part in module.modules() if isinstance(part, nn.Embedding)):
            table.mul_(_FAINT)
    faint = inputs * _FAINT if inputs.is_floating_point() else inputs
    left = _lengths(torch.as_tensor(outputs_of(module(faint))), named)
    return frozenset(name for name in named if left[name] > _ADDED * usual[name])


def _met(module: nn.Module, inputs: Tensor) -> frozenset[frozenset[str]]:
    """See ``_Measured``; where inputs are ids, the tables that they are looked up in stand for them."""
    given = inputs.clone().requires_grad_() if inputs.is_floating_point() else inputs
    tables = [part.weight for part in module.modules() if isinstance(part, nn.Embedding)]
    read = [given] if inputs.is_floating_point() else tables
    bits = {id(leaf): 1 << place for place, leaf in enumerate([*module.parameters(), given])}
    of_inputs = functools.reduce(operator.or_, (bits[id(leaf)] for leaf in read), 0)
    leaves: dict[Any, int] = {}
    waiting: list[Any] = [torch.as_tensor(outputs_of(module(given)))[:, -1].sum().grad_fn]
    while waiting:
        node = waiting[-1]
        parts = [part for part, _ in node.next_functions if part is not None]
        if later := [part for part in parts if part not in leaves]:
            waiting += later
            continue
        own = bits.get(id(node.variable), 0) if hasattr(node, "variable") else 0
        leaves[waiting.pop()] = functools.reduce(operator.or_, map(leaves.__getitem__, parts), own)
    names = {bits[id(weight)]: name for name, weight in module.named_parameters()}
    kinds = {kind for kind in leaves.values() if kind & of_inputs}
    return frozenset(frozenset(name for bit, name in names.items() if bit & kind) for kind in kinds)


def taken_for_less(described: Sequence[Described], growth: Mapping[str, float]) -> list[str]:
    """The names of parameters that read the inputs, and whose effect is carried over time."""
    return [each.name for each in described if each.reason == _READS and growth.get(each.name, 0.0) > 2 * CARRIED]
