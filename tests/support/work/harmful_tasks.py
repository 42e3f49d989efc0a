"""A task that does harm on demand: tests copy this file into a workspace's ``tasks/``."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.data.api import TRAIN, LinearFunctionalTask, Stream
from memsweep.registry import register_task


@register_task("poisoned")
class Poisoned(LinearFunctionalTask):
    """An exponential memory with a poison in it, which acts in a place of the task, or on a batch of a stream."""

    weight_power = 0.0
    variance = 1.0

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Which poison, and where."""

        poison: str = setting("none", "a key of POISONS, nan, inf, or none")
        place: str = setting("train", "init, kernel, property, or a stream: train, validation, test")
        step: int = setting(0, "index of the batch", at_least=0)
        horizon: int = setting(8, "sequence length", at_least=2)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.act("init")

    @property
    def horizon(self) -> int:
        self.act("property")
        return int(self.config.horizon)

    def kernel(self) -> Tensor:
        self.act("kernel")
        values = torch.exp(-torch.arange(self.config.horizon, dtype=torch.float64))
        return self.spoiled(values, "kernel")

    def white_noise(self, stream: Stream, index: int, size: int) -> Tensor:
        place = stream.name if index == self.config.step or stream.name != TRAIN else ""
        self.act(place)
        return self.spoiled(super().white_noise(stream, index, size), place)

    def act(self, place: str) -> None:
        if place == self.config.place and self.config.poison not in ("none", "nan", "inf"):
            POISONS[self.config.poison]()

    def spoiled(self, values: Tensor, place: str) -> Tensor:
        if place == self.config.place and self.config.poison in ("nan", "inf"):
            values = values.clone()
            values[..., -1] = float(self.config.poison)
        return values


class Unpicklable(Exception):
    def __reduce__(self) -> NoReturn:
        raise TypeError("not to be pickled")


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Odd(BaseException):
    pass


def throw(error: BaseException) -> Callable[[], NoReturn]:
    def act() -> NoReturn:
        raise error

    return act


def recursion() -> None:
    recursion()


def spin() -> None:
    while True:
        with contextlib.suppress(Exception):
            sum(range(1000))


def native() -> None:
    """One operation that lets other threads run and takes for ever."""
    big = torch.ones(6000, 6000, dtype=torch.float64)
    torch.linalg.matrix_power(big, 2**30)


def stuck() -> None:
    """One operation that lets no other thread of Python run."""
    re.match(r"(a|aa)+$", "a" * 80 + "b")


def shout() -> None:
    for descriptor in (1, 2):
        os.write(descriptor, b"\x00\xff\x1b[2J\x1b]0;owned\x07 poison-garbage \n" * 250_000)
    sys.stdout.write("poison-garbage " * 10_000 + "\n")
    sys.stderr.write("poison-garbage " * 10_000 + "\n")


def change_everything() -> None:
    torch.set_num_threads(3)
    torch.set_default_dtype(torch.float16)
    torch.set_default_device("meta")
    torch.manual_seed(12345)
    torch.use_deterministic_algorithms(True)
    torch.set_flush_denormal(True)
    torch.set_float32_matmul_precision("medium")
    torch.set_grad_enabled(False)
    np.random.seed(12345)
    np.seterr(all="raise")
    random.seed(12345)
    warnings.simplefilter("error")
    sys.setrecursionlimit(300)
    os.environ["OMP_NUM_THREADS"] = "7"
    os.environ["POISONED"] = "1"
    os.environ.pop("PATH", None)
    os.chdir(tempfile.gettempdir())
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    raise ValueError("everything is changed")


def leave_changed() -> None:
    """As a task that means no harm: it changes the process, and goes on."""
    torch.set_num_threads(2)
    torch.manual_seed(7)
    np.random.seed(7)
    np.seterr(all="ignore")
    os.environ["POISONED"] = "1"
    os.chdir("/")


def delete_folder() -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    shutil.rmtree(folder)


def close_streams() -> None:
    for descriptor in (1, 2):
        os.close(descriptor)


def fork_a_sleeper() -> None:
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)


def fork_and_go_on() -> None:
    """Both the process and its copy go on with the trial."""
    os.fork()


POISONS: dict[str, Callable[[], object]] = {
    "raise": throw(ZeroDivisionError("a fault of the task")),
    "unpicklable": throw(Unpicklable("not to be pickled")),
    "mute": throw(Mute()),
    "long": throw(ValueError("x" * 10_000_000)),
    "terminal": throw(ValueError("\x1b[2J\x07 cleared \x00")),
    "surrogate": throw(ValueError("\ud800")),
    "odd": throw(Odd("no Exception")),
    "interrupt": throw(KeyboardInterrupt()),
    "generator": throw(GeneratorExit()),
    "exit": lambda: sys.exit(0),
    "exit words": throw(SystemExit("x")),
    "recursion": recursion,
    "tebibyte": lambda: torch.empty(2**40, dtype=torch.uint8),
    "tebibyte numpy": lambda: np.ones(2**40, dtype=np.uint8),
    "greedy": lambda: [torch.ones(2**20, dtype=torch.float64) for _ in range(2**10)],
    "leave": lambda: os._exit(0),
    "abort": os.abort,
    "segfault": lambda: ctypes.string_at(0),
    "spin": spin,
    "sleep": lambda: time.sleep(3600),
    "native": native,
    "stuck": stuck,
    "shout": shout,
    "change": change_everything,
    "leave changed": leave_changed,
    "no folder": delete_folder,
    "closed": close_streams,
    "sleeper": fork_a_sleeper,
    "copy": fork_and_go_on,
}
