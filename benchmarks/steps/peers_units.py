"""Selective layers against the same layers in JAX, and against torch's operations, on one core.

JAX is the extra ``bench``; without it only torch's operations are the peer. One layer, forward and backward, one model:
linear maps, gates or step sizes, recurrence and readout. JAX goes through time by ``lax.scan``, compiled whole by XLA,
with gates or steps in the loop, and for state-space layers the readout; others also by ``lax.associative_scan``.
Torch's operations are those of a unit that has nothing compiled but the scan. Answers and all gradients are found equal
first.

Letters: B batch, T time, F features, M width, D channels, S states of a channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
from memsweep.models.deep.unit_selective import SHARPNESS, SelectiveUnit
from memsweep.models.deep.unit_ssm import StateSpaceUnit
from memsweep.streams import Stream

STATE_SPACE: Final = ("s6", "ssd")
GATED: Final = ("min_gru", "min_lstm", "hgrn", "rg_lru")
SIZES: Final = ((64, 64, 32), (64, 256, 16), (64, 256, 4), (64, 256, 1), (256, 256, 16), (64, 64, 512), (1024, 64, 32))
"""Widths, horizons and sequences."""
GATED_SIZES: Final = ((8, 100, 64), (64, 100, 4), (64, 100, 64), (64, 256, 1), (64, 100, 512), (256, 256, 16))
"""The same, of layers whose states are as wide as the layer."""
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


def in_jax(
    layer: Callable[..., Any], unit: Any, weights: dict[str, Tensor], x_NBTF: Tensor, outer_NBTF: Tensor
) -> Callable[[], list[Any]]:
    """The gradients by JAX, in the order of ``gradients``."""
    import jax
    import jax.numpy as jnp

    given = [jnp.asarray(each.detach().numpy()[0]) for each in (*weights.values(), x_NBTF)]
    outer_BTF = jnp.asarray(outer_NBTF.numpy()[0])

    def product(*arrays: Any) -> Any:
        return (outer_BTF * layer(unit, dict(zip(weights, arrays[:-1], strict=True)), arrays[-1])).sum()

    derived = jax.jit(jax.grad(product, argnums=tuple(range(len(given)))))
    return lambda: jax.block_until_ready(derived(*given))


def state_space(unit: Any, own: dict[str, Any], x_BTF: Any) -> Any:
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


def gated(unit: Any, own: dict[str, Any], x_BTF: Any, associative: bool = False) -> Any:
    """Answers ``[B, T, F]``, with gates in the loop, or of all steps at once before an associative scan."""
    import jax
    import jax.numpy as jnp

    names = (*unit.gates, "candidate")
    joined = jnp.concatenate([own[f"encoder_{name}"] for name in names])
    bias = jnp.concatenate([own[f"bias_{name}"] for name in names])
    drive_TBM = (x_BTF @ joined.T + bias).swapaxes(0, 1)

    def coefficients(drive: Any) -> tuple[Any, Any]:
        return coefficients_of(unit.config.name, jnp.split(drive, len(names), -1), own.get("decay"))

    def step(state: Any, drive: Any) -> tuple[Any, Any]:
        decay, added = coefficients(drive)
        state = decay * state + added
        return state, state

    def joint(one: Any, other: Any) -> tuple[Any, Any]:
        return one[0] * other[0], other[0] * one[1] + other[1]

    if associative:
        states_TBM = jax.lax.associative_scan(joint, coefficients(drive_TBM))[1]
    else:
        _, states_TBM = jax.lax.scan(step, jnp.zeros((len(x_BTF), unit.width), x_BTF.dtype), drive_TBM)
    return states_TBM.swapaxes(0, 1) @ own["readout"].T + own["skip"] * x_BTF


def coefficients_of(name: str, drives: Sequence[Any], decay: Any) -> tuple[Any, Any]:
    """a and b of one of ``GATED``."""
    import jax
    import jax.numpy as jnp

    share, candidate = jax.nn.sigmoid, drives[-1]
    if name == "min_gru":
        return share(-drives[0]), share(drives[0]) * candidate
    if name == "min_lstm":
        forget, new = share(drives[0]), share(drives[1])
        return forget / (forget + new), new / (forget + new) * candidate
    if name == "hgrn":
        new = share(-decay) * share(-drives[0])
        return 1.0 - new, new * jax.nn.silu(candidate)
    log_decay = -SHARPNESS * share(drives[0]) * jax.nn.softplus(-decay)
    return jnp.exp(log_decay), jnp.sqrt(-jnp.expm1(2.0 * log_decay)) * share(drives[1]) * candidate


def measured(name: str, size: tuple[int, int, int], dtype: torch.dtype, beside_jax: bool, pairs: int) -> Row:
    width, horizon, batch = size
    unit = made(name, width)
    given = drawn(unit, horizon, batch, dtype)
    plain: Any = SelectiveUnit.run if name in GATED else StateSpaceUnit.run
    sides: dict[str, Callable[[], Any]] = {
        "ours": lambda: gradients(lambda own, *rest: own.run(*rest), unit, *given),
        "torch": lambda: gradients(plain, unit, *given),
    }
    if beside_jax:
        sides["jax"] = in_jax(gated if name in GATED else state_space, unit, *given)
        if name in GATED:
            sides["jax_associative"] = in_jax(partial(gated, associative=True), unit, *given)
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
    for name in (*STATE_SPACE, *GATED):
        sizes = GATED_SIZES if name in GATED else SIZES
        yield from ((name, size, torch.float32) for size in ([(64, 12, 3)] if quick else sizes))
        yield from ((name, size, torch.float64) for size in ([] if quick else sizes[:2]))


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
