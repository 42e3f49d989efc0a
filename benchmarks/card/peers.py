"""The same work elsewhere: torch's Fourier transforms, and JAX where it is installed, on the same device."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.card import measuring

Work = Callable[[], object]


def convolution(kept_NM: Tensor, read_NM: Tensor, x_BT: Tensor, target_BT: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    """Loss and gradient of linear diagonal models by Fourier transforms: responses from powers, products of spectra."""
    horizon = x_BT.shape[1]
    lags_T = torch.arange(horizon, dtype=x_BT.dtype, device=x_BT.device)

    def work() -> tuple[Tensor, ...]:
        live = kept_NM.detach().requires_grad_(), read_NM.detach().requires_grad_()
        response_NT = torch.einsum("ntm,nm->nt", live[0].unsqueeze(1) ** lags_T[:, None], live[1])
        spectra = torch.fft.rfft(x_BT, 2 * horizon) * torch.fft.rfft(response_NT, 2 * horizon)[:, None]
        y_NBT = torch.fft.irfft(spectra, 2 * horizon)[..., :horizon]
        loss_N = (y_NBT - target_BT).square().sum((1, 2))
        return loss_N.detach(), *torch.autograd.grad(loss_N.sum(), live)

    return work


def jax_starts(device: str) -> Any:
    """JAX with float64, or None where it is missing or has no such device; it takes memory as it needs it."""
    if not measuring.has("jax"):
        return None
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("JAX_PLATFORMS", device)
    import jax

    jax.config.update("jax_enable_x64", True)
    try:
        jax.devices()
    except RuntimeError:
        return None
    return jax


def jax_linear(jax: Any, way: str, given: list[Tensor]) -> Work:
    """The same loss and gradient by JAX: ``associative`` or ``scan``; of ``convolution``'s arguments."""
    import jax.numpy as jnp

    kept, read, x, target = (jnp.asarray(each.cpu().numpy()) for each in given)

    def outputs(kept_M: Any, read_M: Any) -> Any:
        drive_TBM = jnp.broadcast_to(x.T[:, :, None], (*x.T.shape, len(kept_M)))
        if way == "associative":
            factors = jnp.broadcast_to(kept_M, (len(drive_TBM), 1, len(kept_M)))
            pairs = (factors, drive_TBM)
            _, states = jax.lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), pairs)
            return states @ read_M

        def step(h: Any, drive: Any) -> tuple[Any, Any]:
            after = kept_M * h + drive
            return after, after @ read_M

        return jax.lax.scan(step, jnp.zeros(drive_TBM.shape[1:], drive_TBM.dtype), drive_TBM)[1]

    def loss(kept_M: Any, read_M: Any) -> Any:
        return jnp.sum((outputs(kept_M, read_M).T - target) ** 2)

    derived = jax.jit(jax.vmap(jax.value_and_grad(loss, (0, 1))))
    return lambda: jax.block_until_ready(derived(kept, read))


def jax_gru(jax: Any, weights: list[Tensor], x_BTF: Tensor, outer_BTM: Tensor) -> Work:
    """A GRU layer forward and backward by ``lax.scan``: of torch's own weights, in torch's order of gates."""
    import jax.numpy as jnp

    into, back, bias, recalled, x, outer = (jnp.asarray(t.detach().cpu().numpy()) for t in (*weights, x_BTF, outer_BTM))

    def weighed(into: Any, back: Any, bias: Any, recalled: Any, x: Any) -> Any:
        def step(h: Any, drive: Any) -> tuple[Any, Any]:
            image, width = h @ back.T + recalled, h.shape[-1]
            reset, kept = jnp.split(jax.nn.sigmoid((drive + image)[:, : 2 * width]), 2, -1)
            after = kept * h + (1 - kept) * jnp.tanh(drive[:, 2 * width :] + reset * image[:, 2 * width :])
            return after, after

        zero = jnp.zeros((x.shape[0], back.shape[1]), x.dtype)
        states = jax.lax.scan(step, zero, jnp.swapaxes(x, 0, 1) @ into.T + bias)[1]
        return jnp.sum(states * jnp.swapaxes(outer, 0, 1))

    derived = jax.jit(jax.value_and_grad(weighed, (0, 1, 2, 3, 4)))
    return lambda: jax.block_until_ready(derived(into, back, bias, recalled, x))


def jax_scan(jax: Any, way: str, matrix_M: Tensor, drive_BTM: Tensor, outer_BTM: Tensor) -> Work:
    """States of a diagonal recurrence and their gradients: ``associative``, or ``scan`` with tanh."""
    import jax.numpy as jnp

    kept, drive, outer = (jnp.asarray(each.detach().cpu().numpy()) for each in (matrix_M, drive_BTM, outer_BTM))

    def weighed(kept: Any, drive: Any) -> Any:
        drive = jnp.swapaxes(drive, 0, 1)
        if way == "associative":
            factors = jnp.broadcast_to(kept, (len(drive), 1, len(kept)))
            states = jax.lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (factors, drive))[1]
        else:

            def step(h: Any, x: Any) -> tuple[Any, Any]:
                after = jnp.tanh(kept * h + x)
                return after, after

            states = jax.lax.scan(step, jnp.zeros_like(drive[0]), drive)[1]
        return jnp.sum(states * jnp.swapaxes(outer, 0, 1))

    derived = jax.jit(jax.value_and_grad(weighed, (0, 1)))
    return lambda: jax.block_until_ready(derived(kept, drive))
