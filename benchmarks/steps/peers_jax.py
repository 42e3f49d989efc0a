"""Packs of ours against the same models in JAX, compiled whole by XLA: a step of training on one processor core.

JAX is the extra ``bench`` (``pip install -e '.[bench]'``); without it this benchmark says so and has no rows. Models:

- ``linear``: the diagonal model of ``benchmarks.steps.peers``, by Fourier transforms (``convolution``) or by
  ``lax.scan``; several models by ``jax.vmap``, over the one batch that our pack shares, too; ``tanh``: the same with
  that activation, by ``lax.scan``;
- ``rnn``, ``gru``, ``lru``: two residual layers (norm, unit, gelu, gate) of these units, in time by ``lax.scan``, or
  ``associative`` by ``lax.associative_scan``. Steps of ``lax.scan`` are not unrolled: that took longer.

Both sides take loss and gradient, clip its norm and go on by AdamW; neither draws sequences. Weights, losses and
gradients, and losses after further steps, are found equal first.

Letters: N models, B batch, T time, F features, M width. Series of JAX are ``[T, B, ...]``.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np
import torch

from benchmarks import harness
from benchmarks.harness import Options, Row
from benchmarks.steps.product import ENDLESS, Pack
from memsweep import registry
from memsweep.config.schema.canonical import trial_from_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.learning.loss.batch_sharding import ShardedBatch
from memsweep.streams import TRAIN, Stream

LINEAR: Final = ((8, 100, 64), (8, 100, 512), (8, 1000, 64), (64, 100, 64), (64, 1000, 64))
"""Widths, horizons and sequences of diagonal models."""
STACKS: Final = tuple(product((16, 64), (50, 200), (32,)))
DIAGONAL: Final = frozenset({"linear", "tanh"})
WAYS: Final = {
    **{"linear": ("convolution", "scan"), "tanh": ("scan",)},
    **{"rnn": ("scan",), "gru": ("scan",), "lru": ("scan", "associative")},
}
PACK: Final = 64
CLIP, LEARNING_RATE, BETA1, BETA2, EPSILON = 0.5, 0.001, 0.9, 0.999, 1e-8
_LAYERS, _LAYER_EPSILON = 2, 1e-6
_TOLERANCES: Final = {"float64": 1e-8, "float32": 2e-3}
_FURTHER = 3  # steps after which losses are compared once more

# One thread, as on our side. Must be set before JAX starts; clocks count the time of all threads.
_SETTINGS: Final = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "NPROC": "1",
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "true",
    "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
}

Arrays = dict[str, Any]


def installed() -> bool:
    """Whether there is a JAX; if so, sets how it starts."""
    if importlib.util.find_spec("jax") is None:
        return False
    os.environ.update(_SETTINGS)
    return True


def trial(model: dict[str, Any], horizon: int, batch: int, models: int, dtype: str) -> TrialConfig:
    """A trial without penalties, on the linear functional."""
    training = {"seeds": models, "steps": ENDLESS, "batch_size": batch, "dtype": dtype, "learning_rate": LEARNING_RATE}
    plain = {"clip": CLIP, "schedule": "constant", "amplitude_penalty": 0.0, "margin_penalty": 0.0}
    return trial_from_dict(
        {
            "task": {"name": "linear_functional", "horizon": horizon},
            "model": model,
            "training": training | plain,
            "perturbation": {"balls": []},
        }
    )


def model_of(kind: str, width: int) -> dict[str, Any]:
    if kind in DIAGONAL:
        return {"name": "diagonal_rnn", "width": width, "activation": kind, "parameterization": {"name": "relu"}}
    unit = {"name": kind} | ({"activation": "tanh"} if kind == "rnn" else {})
    return {"name": "residual_stack", "width": width, "features": width, "layers": _LAYERS, "unit": unit}


class JaxTraining:
    """The models of a pack in training by JAX, all of them in one compiled program.

    Args:
        pack: gives weights and batch.
        kind: linear, tanh, rnn, gru or lru.
        way: how the recurrence is computed.

    Attributes:
        state: weights, running means of gradients and their squares, and the number of steps.
    """

    def __init__(self, pack: Pack, kind: str, way: str) -> None:
        import jax
        import jax.numpy as jnp

        (learner,), training = pack.learners, pack.config.training
        count, dtype = training.seeds, getattr(torch, training.dtype)
        named = learner.ensemble.layout.named(learner.weights)
        drawn = pack.task.draw(Stream(training.data_seed, TRAIN), 0, training.batch_size)
        series = (each.to(dtype).transpose(0, 1).contiguous() for each in (drawn.inputs, drawn.targets))
        x_TBI, y_TBO = (jnp.asarray(each.numpy()) for each in series)
        squares_T = jnp.asarray(pack.task.weights().square().to(dtype).numpy())
        outputs = partial(diagonal, kind, way) if kind in DIAGONAL else partial(stack, kind, way)

        def loss(weights: Arrays) -> Any:
            return (squares_T[:, None, None] * (outputs(weights, x_TBI) - y_TBO) ** 2).mean()

        derived = jax.value_and_grad(loss)
        self.derived = jax.jit(jax.vmap(derived) if count > 1 else derived)
        step = partial(adamw, derived)
        self._step = jax.jit(jax.vmap(step) if count > 1 else step, donate_argnums=0)
        one = slice(count) if count > 1 else 0
        # copies: XLA writes new weights over the old ones
        weights = {name: jnp.array(value[one].numpy(), copy=True) for name, value in named.items()}
        mean, square = ({name: jnp.zeros_like(value) for name, value in weights.items()} for _ in range(2))
        steps = jnp.zeros((count,) if count > 1 else (), training.dtype)
        self.state = {"weights": weights, "mean": mean, "square": square, "steps": steps}

    def step(self) -> np.ndarray:
        """One step of all models; the losses before it."""
        self.state, loss = self._step(self.state)
        return np.asarray(loss)


def adamw(derived: Callable[[Arrays], tuple[Any, Arrays]], state: Arrays) -> tuple[Arrays, Any]:
    """The state of one model after a step, and the loss before it."""
    import jax.numpy as jnp

    loss, gradient = derived(state["weights"])
    norm = jnp.sqrt(sum((each**2).sum() for each in gradient.values()))
    share, steps = jnp.minimum(1.0, CLIP / norm), state["steps"] + 1
    gradient = {name: share * each for name, each in gradient.items()}
    mean = {name: BETA1 * state["mean"][name] + (1 - BETA1) * each for name, each in gradient.items()}
    square = {name: BETA2 * state["square"][name] + (1 - BETA2) * each**2 for name, each in gradient.items()}
    weights = {
        name: each
        - LEARNING_RATE * (mean[name] / (1 - BETA1**steps)) / (jnp.sqrt(square[name] / (1 - BETA2**steps)) + EPSILON)
        for name, each in state["weights"].items()
    }
    return {"weights": weights, "mean": mean, "square": square, "steps": steps}, loss


def diagonal(kind: str, way: str, weights: Arrays, x_TBI: Any) -> Any:
    """Outputs ``[T, B, 1]`` of the diagonal model, h_t = h_{t-1} + sigma(u x_t + b - relu(w) h_{t-1})."""
    import jax
    import jax.numpy as jnp

    rate_M = jax.nn.relu(weights["recurrent_weight"])
    kept_M = 1.0 - rate_M
    if way == "scan":
        drive_TBM = x_TBI @ weights["encoder_weight"].T + weights["encoder_bias"]
        steps = {
            "linear": lambda h_BM, drive_BM: kept_M * h_BM + drive_BM,
            "tanh": lambda h_BM, drive_BM: h_BM + jnp.tanh(drive_BM - rate_M * h_BM),
        }
        return _scanned(steps[kind], drive_TBM) @ weights["readout_weight"].T + weights["readout_bias"]
    horizon = len(x_TBI)
    powers_TM = kept_M ** jnp.arange(horizon, dtype=x_TBI.dtype)[:, None]
    read_M = weights["readout_weight"][0]
    response_T = powers_TM @ (read_M * weights["encoder_weight"][:, 0])
    constant_T = (powers_TM @ (read_M * weights["encoder_bias"])).cumsum() + weights["readout_bias"]
    length = 2 * horizon  # zero padding: a causal, not a circular, convolution
    spectra = jnp.fft.rfft(x_TBI[..., 0], length, 0) * jnp.fft.rfft(response_T, length)[:, None]
    return (jnp.fft.irfft(spectra, length, 0)[:horizon] + constant_T[:, None])[..., None]


def stack(kind: str, way: str, weights: Arrays, x_TBI: Any) -> Any:
    """Outputs ``[T, B, O]`` of the residual stack."""
    import jax

    x_TBF = x_TBI @ weights["encoder_weight"].T + weights["encoder_bias"]
    for layer in range(_LAYERS):
        end = f"_l{layer}"
        own = {name.removesuffix(end): value for name, value in weights.items() if name.endswith(end)}
        mean_TB1 = x_TBF.mean(-1, keepdims=True)
        scale_TB1 = jax.lax.rsqrt(((x_TBF - mean_TB1) ** 2).mean(-1, keepdims=True) + _LAYER_EPSILON)
        read_TBF = (x_TBF - mean_TB1) * scale_TB1 * own["norm_weight"] + own["norm_bias"]
        shown_TBF = jax.nn.gelu(UNITS[kind](way, own, read_TBF), approximate=True)
        mix_TBF, gate_TBF = (shown_TBF @ own[f"{name}_weight"].T + own[f"{name}_bias"] for name in ("mix", "gate"))
        x_TBF = x_TBF + mix_TBF * jax.nn.sigmoid(gate_TBF)
    return x_TBF @ weights["readout_weight"].T + weights["readout_bias"]


def rnn(way: str, own: Arrays, x_TBF: Any) -> Any:
    """A h' + B x of states h' = tanh(h), read by C, and D x."""
    import jax.numpy as jnp

    states_TBM = _scanned(lambda h_BM, drive_BM: jnp.tanh(h_BM) @ own["matrix"].T + drive_BM, x_TBF @ own["encoder"].T)
    return states_TBM @ own["readout"].T + own["skip"] * x_TBF


def gru(way: str, own: Arrays, x_TBF: Any) -> Any:
    """States, of which z is the share that is new."""
    import jax
    import jax.numpy as jnp

    matrix, encoder, bias = (
        jnp.concatenate([own[f"{part}_{gate}"] for gate in ("reset", "update", "candidate")])
        for part in ("matrix", "encoder", "bias")
    )

    def step(h_BM: Any, drive_BG: Any) -> Any:
        width = h_BM.shape[-1]
        image_BG = h_BM @ matrix.T
        reset, update = jnp.split(jax.nn.sigmoid((drive_BG + image_BG)[:, : 2 * width]), 2, -1)
        memory = image_BG[:, 2 * width :] + own["bias_recalled"]
        return (1 - update) * h_BM + update * jnp.tanh(drive_BG[:, 2 * width :] + reset * memory)

    return _scanned(step, x_TBF @ encoder.T + bias, len(own["matrix_reset"]))


def lru(way: str, own: Arrays, x_TBF: Any) -> Any:
    """Re(C h) + D x of complex modes."""
    import jax
    import jax.numpy as jnp

    eigenvalue_M = jnp.exp(-jnp.exp(own["nu"]) + 1j * jnp.exp(own["theta"]))
    gain_M1 = jnp.exp(own["gamma_log"])[:, None]
    drive_TBM = x_TBF @ (gain_M1 * own["encoder_re"]).T + 1j * (x_TBF @ (gain_M1 * own["encoder_im"]).T)
    if way == "associative":
        factors = jnp.broadcast_to(eigenvalue_M, (len(x_TBF), 1, len(eigenvalue_M)))
        _, states_TBM = jax.lax.associative_scan(
            lambda first, second: (first[0] * second[0], second[0] * first[1] + second[1]), (factors, drive_TBM)
        )
    else:
        states_TBM = _scanned(lambda h_BM, drive_BM: eigenvalue_M * h_BM + drive_BM, drive_TBM)
    read_TBF = states_TBM.real @ own["readout_re"].T - states_TBM.imag @ own["readout_im"].T
    return read_TBF + own["skip"] * x_TBF


UNITS: Final[dict[str, Callable[[str, Arrays, Any], Any]]] = {"rnn": rnn, "gru": gru, "lru": lru}


def _scanned(step: Callable[[Any, Any], Any], drive_TBG: Any, width: int | None = None) -> Any:
    """All states ``[T, B, M]``, from zero on."""
    import jax
    import jax.numpy as jnp

    def carried(h_BM: Any, drive_BG: Any) -> tuple[Any, Any]:
        after_BM = step(h_BM, drive_BG)
        return after_BM, after_BM

    zero_BM = jnp.zeros((drive_TBG.shape[1], width or drive_TBG.shape[2]), drive_TBG.dtype)
    return jax.lax.scan(carried, zero_BM, drive_TBG)[1]


def compare(pack: Pack, peer: JaxTraining) -> None:
    """Compare losses and gradients of all models with those of the peer, then losses after further steps of both.

    Raises:
        AssertionError: they differ by more than roundings.
    """
    (learner,), count = pack.learners, pack.config.training.seeds
    close = _TOLERANCES[pack.config.training.dtype]
    batch = ShardedBatch([(1.0, pack.task_loss.prepare(pack.drawn))])
    losses, gradients = learner.gradients(pack.task_loss, batch)
    named = learner.ensemble.layout.named(gradients)
    expected, theirs = peer.derived(peer.state["weights"])
    for _ in range(2):
        found = torch.from_numpy(np.atleast_1d(np.array(expected)))
        torch.testing.assert_close(losses[:count], found, rtol=close, atol=0.0)
        for _ in range(_FURTHER):
            pack.step()
            expected = peer.step()
        losses = learner.loss
    for name, each in theirs.items():
        gradient = torch.from_numpy(np.array(each).reshape(named[name][:count].shape))
        size = float(gradient.norm()) or 1.0
        torch.testing.assert_close(named[name][:count], gradient, rtol=0.0, atol=close * size, msg=name)


def measured(
    kind: str, way: str, sizes: tuple[int, int, int], models: int, dtype: str, pairs: int, least: float
) -> Row:
    """One row; both sides are compared first, which also compiles them."""
    width, horizon, batch = sizes
    pack = Pack.of(trial(model_of(kind, width), horizon, batch, models, dtype))
    peer = JaxTraining(pack, kind, way)
    compare(pack, peer)
    times = harness.alternate({"ours": pack.step, "peer": peer.step}, pairs=pairs, shortest=least)
    pack.check()
    return {
        **{"model": kind, "way": way, "dtype": dtype, "models": models, "width": width, "horizon": horizon},
        **{"sequences": batch, "ratio": harness.ratio(times["peer"], times["ours"])},
        **{f"{side}_milliseconds": 1e3 * harness.median(each) for side, each in times.items()},
    }


def cases(quick: bool) -> Iterator[tuple[str, str, tuple[int, int, int], int, str]]:
    """Model, way, sizes, models and dtype of each row."""
    for kind, ways in WAYS.items():
        sizes = [(4, 12, 3)] if quick else LINEAR if kind in DIAGONAL else STACKS
        counts, dtypes = ((1, PACK), ["float64"]) if kind in DIAGONAL else ([1], ["float32"])
        yield from product([kind], ways, sizes, counts, dtypes)  # type: ignore[misc]


def run(options: Options) -> None:
    """Measure, print and write ``peers_jax.json``."""
    if not installed():
        print("no JAX here, so this comparison is left out; to have it: pip install -e '.[bench]'")
        return
    import jax

    harness.one_thread()
    registry.discover(harness.ROOT)
    pairs, least = (2, 0.002) if options.quick else (harness.PAIRS, harness.SHORTEST)
    rows = []
    for kind, way, sizes, models, dtype in cases(options.quick):
        named = {"model": kind, "way": way, "width": sizes[0], "horizon": sizes[1], "models": models, "dtype": dtype}
        if options.wants(named):
            rows.append(measured(kind, way, sizes, models, dtype, pairs, least))
            harness.tell(rows[-1])
    settings: Row = {"jax": jax.__version__, "environment": dict(_SETTINGS), "clock": "CPU time of the process"}
    harness.publish("peers_jax", settings, rows, options)
