"""All units of deep models: against the processor's float64, packs, bits, launches a step, waits, memory, time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.card import measuring
from benchmarks.card.catalogue import UNITS, Setting
from benchmarks.card.kernels import compared
from benchmarks.card.measuring import TOLERANCES, normal
from memsweep import registry
from memsweep.models.deep.unit import Unit

Row = dict[str, Any]
MODELS = 3


def made(name: str, width: int) -> Unit:
    """A unit with as many features as its width."""
    registry.discover()
    unit_class = registry.get(registry.UNIT, name)
    unit: Unit = unit_class(unit_class.Config(), width, width)
    return unit


def unit(setting: Setting, name: str) -> Iterator[Row]:
    """Answers and all gradients of three models, and what a step costs."""
    for width, horizon, batch in ((4, 6, 2),) if setting.quick else ((8, 33, 3), (64, 64, 16)):
        each = made(name, width)
        drawn = [each.initial(horizon, np.random.default_rng(seed)) for seed in range(MODELS)]
        noise = np.random.default_rng(5)
        stacked = {key: np.stack([one[key] for one in drawn]) for key in drawn[0]}
        weights = [torch.from_numpy(value + 0.02 * noise.standard_normal(value.shape)) for value in stacked.values()]
        inputs, outer = (normal(MODELS, batch, horizon, width, seed=seed) for seed in (1, 2))
        for dtype in TOLERANCES:
            wide = [tensor.to(dtype).double() for tensor in (*weights, inputs, outer)]
            work = run(each, list(stacked))
            row: Row = {"unit": name, "width": width, "horizon": horizon, "sequences": batch}
            yield row | compared(work, wide, work(*wide), dtype, setting.device, bits=0)
    yield {"unit": name} | cost(each, list(stacked), setting)


def run(unit: Unit, names: list[str]) -> Callable[..., list[Tensor]]:
    """A function of weights, inputs and the gradient that arrives: answers, and the gradients by weights and inputs."""

    def work(*given: Tensor) -> list[Tensor]:
        *tensors, outer = given
        live = [each.detach().requires_grad_() for each in tensors]
        answers = unit.run(dict(zip(names, live, strict=False)), live[-1])
        found = torch.autograd.grad(answers, live, outer, allow_unused=True)
        # a weight without a gradient (of a fixed recurrence) has a zero one
        pairs = zip(found, live, strict=True)
        return [answers.detach(), *(torch.zeros_like(one) if of is None else of for of, one in pairs)]

    return work


def cost(unit: Unit, names: list[str], setting: Setting) -> Row:
    """Launches a step of time from two horizons, waits, MiB and milliseconds; float32, one model."""
    horizons = (4, 8) if setting.quick else (64, 128)
    counted, rows = [], {}
    for horizon in horizons:
        given = data_of(unit, horizon, 2 if setting.quick else 16, setting.device)
        work = run(unit, names)
        counted.append(measuring.launches(lambda work=work, given=given: work(*given), setting.device))
    call = lambda: work(*given)  # noqa: E731
    rows = {"horizon": horizons[1], "milliseconds": measuring.milliseconds(call, setting.device)}
    rows |= {"waits": measuring.waits(call, setting.device), "peak_mib": measuring.peak_mib(call, setting.device)}
    if counted[0] is not None and counted[1] is not None:
        rows |= {"launches": counted[1], "launches_a_step": (counted[1] - counted[0]) / (horizons[1] - horizons[0])}
    return rows


def data_of(unit: Unit, horizon: int, batch: int, device: str) -> list[Tensor]:
    """Weights, inputs and the gradient that arrives, of one model, float32."""
    drawn = unit.initial(horizon, np.random.default_rng(0))
    weights = [torch.from_numpy(np.asarray(value, np.float32))[None].to(device) for value in drawn.values()]
    series = (normal(1, batch, horizon, unit.features, seed=seed, dtype=torch.float32) for seed in (1, 2))
    return [*weights, *(each.to(device) for each in series)]


def times(setting: Setting) -> Iterator[Row]:
    """Forward and backward of each unit, one model, float32."""
    sizes = [(4, 6, 2)] if setting.quick else list(product((64,), (100, 1000), (64,)))
    for (width, horizon, batch), name in product(sizes, UNITS):
        each = made(name, width)
        given = data_of(each, horizon, batch, setting.device)
        work = run(each, list(each.initial(horizon, np.random.default_rng(0))))
        took = measuring.milliseconds(lambda work=work, given=given: work(*given), setting.device, 0.1)
        yield {"unit": name, "width": width, "horizon": horizon, "sequences": batch, "milliseconds": took}
