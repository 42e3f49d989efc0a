"""Selective state-space layers against the same layers in JAX, and against torch's operations, on one core.

JAX is the extra ``bench``; without it only torch's operations are the peer. One layer, forward and backward, one model:
linear maps, step sizes, recurrence and readout. JAX goes through time by ``lax.scan``, with step and readout in the
loop, compiled whole by XLA. Torch's operations are those of a unit that has nothing compiled but the scan. Answers and
all gradients are found equal first.

Letters: B batch, T time, F features, D channels, S states of a channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from benchmarks import harness
from benchmarks.harness import Options, Row
from benchmarks.steps import peers_jax
from benchmarks.steps.units import made, weights_of
from memsweep import registry
from memsweep.models.deep.unit import Unit
from memsweep.models.deep.unit_ssm import StateSpaceUnit
from memsweep.streams import Stream

UNITS: Final = ("s6", "ssd")
SIZES: Final = ((64, 64, 32), (64, 256, 16), (64, 256, 4), (64, 256, 1), (256, 256, 16), (64, 64, 512), (1024, 64, 32))
"""Widths, horizons and sequences."""
_TOLERANCES: Final = {torch.float64: 1e-10, torch.float32: 1e-3}

Way = Callable[[Unit, dict[str, Tensor], Tensor], Tensor]


def drawn(unit: Unit, horizon: int, batch: int, dtype: torch.dtype) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Weights, inputs and gradients of the answers."""
    noise, shape = Stream(0, "inputs").generator(), (1, batch, horizon, unit.features)
    weights = {name: each.detach().to(dtype).requires_grad_() for name, each in weights_of(unit, horizon).items()}
    x_NBTF, outer_NBTF = (torch.from_numpy(noise.standard_normal(shape)).to(dtype) for _ in range(2))
    return weights, x_NBTF.requires_grad_(), outer_NBTF


def gradients(way: Way, unit: Unit, weights: dict[str, Tensor], x_NBTF: Tensor, outer_NBTF: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(way(unit, weights, x_NBTF), [*weights.values(), x_NBTF], outer_NBTF))


def in_jax(unit: Any, weights: dict[str, Tensor], x_NBTF: Tensor, outer_NBTF: Tensor) -> Callable[[], list[Any]]:
    """The gradients by JAX, in the order of ``gradients``."""
    import jax
    import jax.numpy as jnp

    given = [jnp.asarray(each.detach().numpy()[0]) for each in (*weights.values(), x_NBTF)]
    outer_BTF = jnp.asarray(outer_NBTF.numpy()[0])

    def product(*arrays: Any) -> Any:
        return (outer_BTF * layer(unit, dict(zip(weights, arrays[:-1], strict=True)), arrays[-1])).sum()

    derived = jax.jit(jax.grad(product, argnums=tuple(range(len(given)))))
    return lambda: jax.block_until_ready(derived(*given))


def layer(unit: Any, own: dict[str, Any], x_BTF: Any) -> Any:
    """Answers ``[B, T, F]``; one head decays as a whole where it has one rate."""
    import jax
    import jax.numpy as jnp

    heads, states = unit.heads, unit.config.states
    joined = jnp.concatenate([own[f"encoder_{name}"] for name in ("step", "input", "candidate", "output")])
    cuts = [heads, heads + states, heads + states + unit.channels]
    drive, key, channel, query = (each.swapaxes(0, 1) for each in jnp.split(x_BTF @ joined.T, cuts, -1))
    rate = jnp.exp(own["decay"]).reshape(heads, -1, 1 if len(own["decay"]) == heads else states)

    def step(state: Any, now: Any) -> tuple[Any, Any]:
        size, k_BS, x_BHP, q_BS = now
        decay = jnp.exp(-size[..., None, None] * rate)
        state = decay * state + (size[..., None] * x_BHP)[..., None] * k_BS[:, None, None]
        return state, (state * q_BS[:, None, None]).sum(-1)

    by_head = channel.reshape(*channel.shape[:2], heads, -1)
    zero = jnp.zeros((*by_head.shape[1:], states), x_BTF.dtype)
    _, found = jax.lax.scan(step, zero, (jax.nn.softplus(drive + own["bias_step"]), key, by_head, query))
    return (found.reshape(channel.shape) + own["skip"] * channel).swapaxes(0, 1) @ own["readout"].T


def measured(name: str, size: tuple[int, int, int], dtype: torch.dtype, beside_jax: bool, pairs: int) -> Row:
    width, horizon, batch = size
    unit = made(name, width)
    given = drawn(unit, horizon, batch, dtype)
    sides: dict[str, Callable[[], Any]] = {
        "ours": lambda: gradients(lambda own, *rest: own.run(*rest), unit, *given),
        "torch": lambda: gradients(StateSpaceUnit.run, unit, *given),  # type: ignore[arg-type]
    }
    if beside_jax:
        sides["jax"] = in_jax(unit, *given)
    ours = sides["ours"]()
    for peer in [*sides][1:]:
        for one, other in zip(ours, sides[peer](), strict=True):
            expected = torch.from_numpy(np.array(other).reshape(one.shape))
            close = _TOLERANCES[dtype] * expected.abs().max().item()
            torch.testing.assert_close(one, expected, rtol=0.0, atol=close)
    times = harness.alternate(sides, pairs=pairs)
    row: Row = {"unit": name, "dtype": str(dtype).removeprefix("torch."), "width": width, "horizon": horizon}
    row |= {"sequences": batch, "milliseconds": 1e3 * harness.median(times["ours"])}
    return row | {f"of_{peer}": harness.ratio(times[peer], times["ours"]) for peer in [*sides][1:]}


def cases(quick: bool) -> Iterator[tuple[str, tuple[int, int, int], torch.dtype]]:
    for name in UNITS:
        yield from ((name, size, torch.float32) for size in ([(64, 12, 3)] if quick else SIZES))
        yield from ((name, size, torch.float64) for size in ([] if quick else SIZES[:2]))


def run(options: Options) -> None:
    """Measure, print and write ``peers_units.json``."""
    beside_jax = peers_jax.installed()
    if not beside_jax:
        print("no JAX here, so its column is left out; to have it: pip install -e '.[bench]'")
    registry.discover()
    harness.one_thread()
    rows = []
    for name, size, dtype in cases(options.quick):
        named = {"unit": name, "width": size[0], "horizon": size[1], "sequences": size[2]}
        if options.wants(named):
            rows.append(measured(name, size, dtype, beside_jax, 1 if options.quick else harness.PAIRS))
            harness.tell(rows[-1])
    settings: Row = {"models": 1, "clock": "CPU time of the process", "states": 16, "channels_of_a_head_of_ssd": 4}
    harness.publish("peers_units", settings, rows, options)
