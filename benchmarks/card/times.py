"""Times on the clock of our kernels beside torch's own layers (cuDNN), Fourier transforms and JAX; same device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.card import measuring, peers
from benchmarks.card.catalogue import Setting
from benchmarks.card.kernels import layer_data, scan_data
from benchmarks.card.measuring import TOLERANCES, normal
from benchmarks.steps.peers_gated import Pair
from memsweep.recurrence.layer import Layer
from memsweep.recurrence.layer_outputs import layer_outputs, squared_loss
from memsweep.recurrence.scan import linear_scan, scan

Row = dict[str, Any]
HORIZONS, WIDTHS, BATCHES = (100, 1000, 4000), (8, 64, 256, 1024), (1, 64)
LONGEST = 0.15
"""Seconds for one figure."""


def timed(sides: dict[str, Callable[[], object] | None], device: str) -> Row:
    """Milliseconds of each side, and the peers' by ours; what a side cannot do is its error."""
    row: Row = {}
    for name, work in sides.items():
        if work is None:
            continue
        try:
            row[f"{name}_ms"] = measuring.milliseconds(work, device, LONGEST)
            if "ours_ms" in row and name != "ours":
                row[f"{name}_by_ours"] = round(row[f"{name}_ms"] / row["ours_ms"], 4)
        except Exception as error:
            row[f"{name}_error"] = f"{type(error).__name__}: {str(error)[:160]}"
    return row


def ceilings(setting: Setting) -> Iterator[Row]:
    """The best that the device does here: a copy, matrix products, and an empty launch."""
    size, count = (256, 1 << 16) if setting.quick else (8192, 1 << 28)
    source = torch.rand(count, device=setting.device)
    target = torch.empty_like(source)
    took = measuring.milliseconds(lambda: target.copy_(source), setting.device)
    yield {"what": "copy", "gb_per_second": round(8e-6 * count / took, 1)}
    for dtype in TOLERANCES:
        square = torch.rand(size, size, device=setting.device, dtype=dtype)
        took = measuring.milliseconds(lambda square=square: square @ square, setting.device)
        yield {"what": f"product {measuring.named(dtype)}", "gflop_per_second": round(2e-6 * size**3 / took, 1)}
    one = torch.zeros(1, device=setting.device)
    yield {"what": "launch", "milliseconds": measuring.milliseconds(lambda: one.add_(1.0), setting.device)}
    yield {
        "what": "jax",
        "devices": [str(each) for each in jax.devices()] if (jax := peers.jax_starts(setting.device)) else [],
    }


def sizes(setting: Setting, widths: tuple[int, ...] = WIDTHS) -> Iterator[tuple[torch.dtype, int, int, int]]:
    """Kind of numbers, width, steps, sequences."""
    if setting.quick:
        yield from product(TOLERANCES, (4,), (6,), (2,))
    else:
        for dtype, width, horizon, batch in product(TOLERANCES, widths, HORIZONS, BATCHES):
            if dtype == torch.float32 or width == 64:  # what studies compute in most, and one width of the other
                yield dtype, width, horizon, batch


def linear(setting: Setting) -> Iterator[Row]:
    """Loss and gradient of linear diagonal models: one kernel, against transforms, a scan and a parallel scan."""
    jax = peers.jax_starts(setting.device)
    for models in (1,) if setting.quick else (1, 64):
        for dtype, width, horizon, batch in sizes(setting, WIDTHS if models == 1 else WIDTHS[:2]):
            if models > 1 and horizon > 1000:
                continue
            data = layer_data((models, width, 1, 1, batch, horizon), False, 0.0)
            kept, x, target = (each.to(setting.device, dtype) for each in (data[2], data[5], data[6]))
            read = data[3][:, 0].to(setting.device, dtype)
            given = [kept, read, x[..., 0], target[..., 0]]
            row: Row = {"models": models, "dtype": measuring.named(dtype), "width": width, "horizon": horizon}
            row["sequences"] = batch
            sides: dict[str, Callable[[], object] | None] = {
                "ours": kernel_loss(*given),
                "fft": peers.convolution(*given),
            }
            apart = measuring.difference(sides["fft"]()[:3], sides["ours"]()[:3])  # type: ignore[index, misc]
            row |= {"fft_difference": apart}
            small = batch * horizon * width <= 1 << 26 and (horizon == 1000 or width == 64)
            if jax and small and models == 1 and dtype == torch.float32 and batch > 1:  # each row is compiled
                sides["associative"] = peers.jax_linear(jax, "associative", given)
                if horizon <= 1000:
                    sides["scan"] = peers.jax_linear(jax, "scan", given)
            yield row | timed(sides, setting.device) | {"peak_mib": measuring.peak_mib(sides["ours"], setting.device)}  # type: ignore[arg-type]


def kernel_loss(kept: Tensor, read: Tensor, x_BT: Tensor, target_BT: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    """Ours: the layer's squared loss and its gradients."""
    models, width = kept.shape
    one, zero = kept.new_ones(models, width, 1), kept.new_zeros(models, width)
    offset, weights = kept.new_zeros(models, 1), kept.new_ones(x_BT.shape[1])

    def work() -> tuple[Tensor, ...]:
        live = kept.detach().requires_grad_(), read.detach().requires_grad_()
        layer = Layer(one, zero, live[0], live[1][:, None], offset)
        loss = squared_loss(layer, x_BT[..., None], target_BT[..., None], weights)
        if loss is None:  # on a processor without the compiled code
            loss = (layer_outputs(layer, x_BT[..., None])[..., 0] - target_BT).square().sum((1, 2))
        return loss.detach(), *torch.autograd.grad(loss.sum(), live)

    return work


def gated(setting: Setting) -> Iterator[Row]:
    """GRU, LSTM and a plain RNN against torch.nn (cuDNN), with tf32 and without, and a GRU by JAX."""
    torch.backends.cudnn.allow_tf32 = False
    jax = peers.jax_starts(setting.device)
    for name, (dtype, width, horizon, batch) in product(("gru", "lstm", "rnn"), list(sizes(setting, (64, 256)))):
        if horizon > 1000 and (name != "rnn" or width != 64 or dtype == torch.float64):  # others take seconds
            continue
        sides, row = gated_sides(name, dtype, width, horizon, batch, setting.device)
        if jax and name == "gru" and dtype == torch.float32 and horizon <= 1000 and batch > 1:
            sides["jax"] = jax_gru(jax, sides["pair"])
        pair = sides.pop("pair")
        row |= timed(sides, setting.device)
        if dtype == torch.float32 and setting.device == "cuda":
            torch.backends.cudnn.allow_tf32 = True
            row |= {f"tf32_{key}": value for key, value in timed({"cudnn": sides["cudnn"]}, setting.device).items()}
            torch.backends.cudnn.allow_tf32 = False
        del pair
        yield row


def gated_sides(name: str, dtype: torch.dtype, width: int, horizon: int, batch: int, device: str) -> tuple[Any, Row]:
    """Both sides, and how far apart they are."""
    row: Row = {"layer": name, "dtype": measuring.named(dtype), "width": width, "horizon": horizon, "sequences": batch}
    if name == "rnn":
        ours, peer, pair = plain_rnn(dtype, width, horizon, batch, device)
    else:
        pair = moved(Pair(name, width, horizon, batch, dtype), device)
        ours, peer = pair.ours, pair.peer
    row["difference"] = measuring.difference([ours()[0]], [peer()[0]])
    return {"ours": ours, "cudnn": peer, "pair": pair}, row


def moved(pair: Pair, device: str) -> Pair:
    """The pair on the device."""
    pair.weights = {name: each.detach().to(device).requires_grad_() for name, each in pair.weights.items()}
    pair.inputs = pair.inputs.detach().to(device).requires_grad_()
    pair.outer, pair.torchs = pair.outer.to(device), pair.torchs.to(device)
    return pair


def plain_rnn(dtype: torch.dtype, width: int, horizon: int, batch: int, device: str) -> tuple[Any, Any, None]:
    """h_t = tanh(W x_t + b + A h_{t-1}), forward and backward: our scan, and torch.nn.RNN."""
    module = nn.RNN(width, width, batch_first=True, dtype=dtype, device=device)
    x = normal(batch, horizon, width, seed=1).to(device, dtype).requires_grad_()
    outer = normal(batch, horizon, width, seed=2).to(device, dtype)
    weights = list(module.parameters())

    def ours() -> tuple[Tensor, ...]:
        drive = torch.nn.functional.linear(x, module.weight_ih_l0, module.bias_ih_l0 + module.bias_hh_l0)
        states = scan(drive[None], module.weight_hh_l0[None], "tanh", 0.0)[0]
        return states.detach(), *torch.autograd.grad(states, [x, *weights], outer)

    def peer() -> tuple[Tensor, ...]:
        states = module(x)[0]
        return states.detach(), *torch.autograd.grad(states, [x, *weights], outer)

    return ours, peer, None


def jax_gru(jax: Any, pair: Pair) -> Callable[[], object]:
    layer = pair.torchs
    weights = [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0]
    return peers.jax_gru(jax, weights, pair.inputs, pair.outer)


def scans(setting: Setting) -> Iterator[Row]:
    """States and gradients of recurrences that are driven unit by unit, one model; beside JAX's scans."""
    jax = peers.jax_starts(setting.device)
    for kind, (dtype, width, horizon, batch) in product(("diagonal", "tanh", "complex"), list(sizes(setting))):
        if width * horizon * batch > 1 << 26:
            continue
        drive, matrix, outer = scan_data(
            "complex" if kind == "complex" else "diagonal", 0.0, (1, batch, horizon, width)
        )
        single = torch.complex64 if kind == "complex" else torch.float32
        here = [
            each.to(setting.device, single if dtype == torch.float32 else each.dtype) for each in (drive, matrix, outer)
        ]
        sides: dict[str, Callable[[], object] | None] = {"ours": our_scan(kind, *here)}
        if jax and dtype == torch.float32 and horizon == 1000 and batch > 1:
            way = "scan" if kind == "tanh" else "associative"
            sides[way] = peers.jax_scan(jax, way, here[1][0], here[0][0], here[2][0])
        row: Row = {"scan": kind, "dtype": measuring.named(dtype), "width": width, "horizon": horizon}
        yield row | {"sequences": batch} | timed(sides, setting.device)


def our_scan(kind: str, drive: Tensor, matrix: Tensor, outer: Tensor) -> Callable[[], object]:
    live = drive.requires_grad_(), matrix.requires_grad_()

    def work() -> object:
        states = scan(*live, "tanh", 0.0) if kind == "tanh" else linear_scan(live[1], live[0])
        return torch.autograd.grad(states, live, outer)

    return work


def compiled(setting: Setting) -> Iterator[Row]:
    """Seconds of the first call of each kernel that is timed later, and of a call with other sequences and steps."""
    for dtype, width in product(TOLERANCES, (4,) if setting.quick else WIDTHS):
        works: dict[str, Callable[[int, int], Callable[[], object]]] = {
            "loss": _loss_work(width, dtype, setting.device)
        }
        for kind in ("diagonal", "tanh", "complex", "dense"):
            works[kind] = _scan_work(kind, width, dtype, setting.device)
        for name, made in works.items():
            row: Row = {"kernel": name, "dtype": measuring.named(dtype), "width": width}
            for key, sizes in (("first_seconds", (2, 3)), ("other_sizes_seconds", (1, 4))):
                start = time.perf_counter()
                made(*sizes)()
                measuring.synchronize(setting.device)
                row[key] = round(time.perf_counter() - start, 3)
            yield row


def _loss_work(width: int, dtype: torch.dtype, device: str) -> Callable[[int, int], Callable[[], object]]:
    def made(batch: int, horizon: int) -> Callable[[], object]:
        data = layer_data((1, width, 1, 1, batch, horizon), False, 0.0)
        given = data[2], data[3][:, 0], data[5][..., 0], data[6][..., 0]
        return kernel_loss(*(each.to(device, dtype) for each in given))

    return made


def _scan_work(kind: str, width: int, dtype: torch.dtype, device: str) -> Callable[[int, int], Callable[[], object]]:
    def made(batch: int, horizon: int) -> Callable[[], object]:
        data = scan_data("diagonal" if kind == "tanh" else kind, 0.0, (1, batch, horizon, width))
        wide = torch.promote_types(dtype, torch.complex32) if kind == "complex" else dtype
        return our_scan("tanh" if kind == "dense" else kind, *(each.to(device, wide) for each in data))

    return made
