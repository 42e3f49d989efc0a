"""The influence of parameters over time: one is recurrent where its effect is carried over time.

The response of a module to a small push of one input is followed over the lags behind it. A parameter of the
recurrence acts on it once more with each step, so that its effect on the logarithm of the response grows with the lag.
The effect of an encoder or a readout, which act once, does not. The *growth* of a parameter is its effect at a long lag
over the least of those at lag 0 and soon after it: what
decays a state has no effect before the first step.

Letters: B batch, T time, I inputs, O outputs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn

from memsweep.models.base import Part, Signature
from memsweep.models.contracts import default_dtype
from memsweep.models.module.anatomy import PROBE_STEPS, build_module, looked_at, to_dtype
from memsweep.models.module.config import ModuleConfig
from memsweep.models.module.factory import outputs_of, probe_inputs
from memsweep.models.module.roles import Described

CARRIED = 3.0
"""Growth, relative to what acts once, from which a parameter is said to be carried over time."""
ACTS_ONCE = 1.5
"""Growth up to which a parameter is said to act once: matrices of recurrences have ten and more."""
MOST = 1000.0
"""A growth that is shown; that of an effect that begins after lag 0 has no limit."""
SEEDS = 5
"""Initializations of a median: the response of a single one may pass near 0."""
LEAST_LAG = 6
"""A response that is gone before says nothing."""
_LONGEST_LAG, _START, _PUSH = 24, 4, 1e-4
_LAGS = 3
"""Neighbouring lags of a median: a response may pass through 0 at one."""
_SEEN = 1e-10
"""Share of the largest response that rounding leaves alone, in float64."""


def growths(module: nn.Module, inputs: Tensor) -> dict[str, float]:
    """The growth of each parameter by name; nan where it has no effect on the response.

    Args:
        module: in evaluation, in float64.
        inputs: ``[B, T, I]`` numbers, or ids ``[B, T]``.

    Returns:
        Empty where no response lasts for ``LEAST_LAG`` steps.
    """
    named = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    powers = _response(module, inputs)
    seen = (powers.detach() > _SEEN**2 * powers.detach().max()).nonzero().flatten()
    late = min(int(seen[-1]) if len(seen) else 0, _LONGEST_LAG)
    if not named or late < LEAST_LAG or not powers.requires_grad:
        return {}
    lags = ([0], range(1, 1 + _LAGS), range(late - _LAGS + 1, late + 1))
    now, soon, far = (_effects(powers, each, named) for each in lags)
    early = {name: min(now[name], soon[name]) for name in named}
    return {
        name: min(far[name] / early[name], MOST) if early[name] else MOST if far[name] else math.nan for name in named
    }


def _response(module: nn.Module, inputs: Tensor) -> Tensor:
    """The sum of squares of the response to a push of one input, by lag, over sequences and outputs."""
    start = min(_START, inputs.shape[1] // 4)
    pushed = inputs.clone()
    if inputs.is_floating_point():
        pushed[:, start] += _PUSH
    else:
        pushed[:, start] = (pushed[:, start] + 1) % (int(inputs.max()) + 1)
    difference = outputs_of(module(pushed)) - outputs_of(module(inputs))
    return torch.as_tensor(difference[:, start:]).flatten(2).square().sum((0, 2))


def _effects(powers: Tensor, lags: Sequence[int], named: Mapping[str, Tensor]) -> dict[str, float]:
    """The length of the gradient of the logarithm of a response, the median over some lags, by parameter."""
    found: dict[str, list[float]] = {name: [] for name in named}
    for lag in (lag for lag in lags if float(powers[lag].detach()) > 0.0):
        gradients = torch.autograd.grad(powers[lag].log(), list(named.values()), retain_graph=True, allow_unused=True)
        for name, gradient in zip(named, gradients, strict=True):
            found[name].append(0.0 if gradient is None else float(gradient.abs().square().sum().sqrt()))
    return {name: median(lengths) if lengths else 0.0 for name, lengths in found.items()}


@functools.lru_cache(maxsize=64)
def carried_over_time(config: ModuleConfig, signature: Signature) -> dict[str, float]:
    """The growth of each parameter over that of those that act once: near 1 for these, several where it is carried.

    The median over some initializations, each relative to the lower quartile of its parameters; empty where responses
    are too short, or cannot be derived.
    """
    sizes = config.sizes(signature)
    steps = Signature(sizes.inputs, sizes.outputs, min(PROBE_STEPS, sizes.horizon))
    inputs = probe_inputs(steps, config.tokens, batch=4, dtype=torch.float64)
    found: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        module = build_module(config, signature, seed).eval()
        with looked_at(config.factory, None), default_dtype(torch.float64):
            to_dtype(module, torch.float64)
            growth = {name: each for name, each in growths(module, inputs).items() if math.isfinite(each) and each}
        once = float(np.quantile([*growth.values()], 0.25)) if growth else 1.0
        for name, each in growth.items():
            found.setdefault(name, []).append(each / once)
    return {name: median(each) for name, each in found.items()}


def taken_for_less(described: Sequence[Described], growth: Mapping[str, float]) -> list[str]:
    """The names of parameters whose effect is carried over time, and that a guess takes for something else."""
    return [
        each.name
        for each in described
        if each.guessed and each.role.part is not Part.RECURRENT and growth.get(each.name, 0.0) >= CARRIED
    ]


def taken_for_more(described: Sequence[Described], growth: Mapping[str, float]) -> list[str]:
    """The names of parameters that act once, and that a guess takes for a part of the recurrence."""
    return [
        each.name
        for each in described
        if each.guessed and each.role.part is Part.RECURRENT and growth.get(each.name, math.inf) <= ACTS_ONCE
    ]
