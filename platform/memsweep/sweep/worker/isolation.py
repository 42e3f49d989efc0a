"""Restores the settings of a process after a trial, so that the next trial there computes the same bits."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Undo = Callable[[], None]


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Restore, after the body, the settings of this process that tasks and models are known to change.

    These are standard output and error, the working directory, the environment, signal handlers, and the settings and
    global random generators of Python, numpy and torch. Patches of a task in other modules stay.
    """
    with contextlib.ExitStack() as undo:
        # restored from the last to the first: with warnings as errors, restoring the others might fail
        for remember in (_torch, _numpy, _signals, _environment, _folder, _streams, _python):
            undo.callback(remember())
        yield


@contextlib.contextmanager
def original_only() -> Iterator[None]:
    """End a copy of the process, which the body made by ``os.fork``, with the body; only the original goes on.

    It must be the innermost context: a copy has none of the other threads and would wait for them for ever.
    """
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(0)


def _streams() -> Undo:
    """File descriptors 1 and 2: if a task closed one, the next file that is opened would receive all prints."""
    objects = sys.stdin, sys.stdout, sys.stderr
    copies: dict[int, int] = {}
    for number in (1, 2):
        with contextlib.suppress(OSError):  # it was closed before
            copies[number] = os.dup(number)

    def undo() -> None:
        for number, copy in copies.items():
            os.dup2(copy, number)
            os.close(copy)
        sys.stdin, sys.stdout, sys.stderr = objects
        for name, number in (("stdout", 1), ("stderr", 2)):
            if getattr(getattr(sys, name), "closed", False):
                setattr(sys, name, open(number, "w", buffering=1, errors="backslashreplace", closefd=False))  # noqa: SIM115

    return undo


def _folder() -> Undo:
    try:
        before = os.getcwd()
    except OSError:  # it was deleted before
        return lambda: None

    def undo() -> None:
        try:
            os.chdir(before)
        except OSError:
            os.chdir("/")  # a process in a deleted folder fails wherever a path is made absolute

    return undo


def _environment() -> Undo:
    before = dict(os.environ)

    def undo() -> None:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})

    return undo


def _signals() -> Undo:
    if threading.current_thread() is not threading.main_thread():
        return lambda: None  # only the main thread can change them
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def undo() -> None:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)

    return undo


def _python() -> Undo:
    filters, recursion, collecting = warnings.filters[:], sys.getrecursionlimit(), gc.isenabled()
    state, path = random.getstate(), list(sys.path)

    def undo() -> None:
        sys.setrecursionlimit(recursion)
        (gc.enable if collecting else gc.disable)()
        random.setstate(state)
        sys.path[:] = path
        if warnings.filters != filters:
            with contextlib.suppress(AttributeError):  # a list in every version so far
                warnings.filters[:] = filters  # type: ignore[index]
            warnings._filters_mutated()  # type: ignore[attr-defined]

    return undo


def _numpy() -> Undo:
    import numpy as np

    errors, state = np.geterr(), np.random.get_state()

    def undo() -> None:
        np.seterr(**errors)
        np.random.set_state(state)

    return undo


def _torch() -> Undo:
    import torch

    threads, state = torch.get_num_threads(), torch.get_rng_state()
    settings: list[tuple[Callable[[], Any], Callable[[Any], object]]] = [
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.is_grad_enabled, torch.set_grad_enabled),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        (lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on)),
        (lambda: torch.is_autocast_enabled("cuda"), lambda on: torch.set_autocast_enabled("cuda", on)),
        (_flushes_denormals, torch.set_flush_denormal),
        (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
        # the ways to compute attention, of the CPU's, too
        (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
        (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
        (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
        (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
        *(
            (partial(getattr, of, name), partial(setattr, of, name))
            for of, names in (
                (torch.backends.mkldnn, ("enabled",)),
                (torch.backends.cudnn, ("enabled", "benchmark", "deterministic")),
                (torch.utils.deterministic, ("fill_uninitialized_memory",)),
            )
            for name in names
        ),
    ]
    before = [get() for get, _ in settings]
    device = torch.get_default_device()

    def undo() -> None:
        torch.set_num_threads(threads)
        if torch.get_default_device() != device:
            # None, not the CPU: with a device set, torch looks at every call for one that makes a tensor
            torch.set_default_device(None if device.type == "cpu" else device)
        for (get, put), value in zip(settings, before, strict=True):
            if get() != value:
                put(value)
        torch.set_rng_state(state)

    return undo


def _flushes_denormals() -> bool:
    smallest = sys.float_info.min
    return smallest / 2.0 == 0.0
