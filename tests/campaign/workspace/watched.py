"""Tasks that a campaign watches and poisons: it copies this file into the ``tasks/`` of each round's workspace.

The workspace's files steer them: ``gate`` holds the seconds that every batch of training takes, ``poison`` what the
next batch does to its process (one takes it, and only once), ``batches`` says who asked for which batch, and when.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.data.api import TRAIN, Batch, Corpus, LinearFunctionalTask, Stream, TextTask
from memsweep.data.contract import SEQUENCES
from memsweep.data.meaning import MANY
from memsweep.registry import register_task

HERE = Path(__file__).resolve().parents[1]


def watch(horizon: int, step: int) -> None:
    """Note a batch, wait at the gate, take the poison."""
    log = os.open(HERE / "batches", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, f"{os.getpid()} {horizon} {step} {os.uname().nodename} {time.time()}\n".encode())
    os.close(log)
    with contextlib.suppress(FileNotFoundError):
        time.sleep(float((HERE / "gate").read_text()))
    with contextlib.suppress(FileNotFoundError):
        taken = (HERE / "poison").rename(HERE / f"poison.{time.time_ns()}")
        poison(taken.read_text())


def poison(kind: str) -> None:
    """Do harm."""
    match kind:
        case "raise":
            raise ZeroDivisionError("a fault of the task")
        case "exit":
            os._exit(3)
        case "abort":
            os.abort()
        case "segfault":
            ctypes.string_at(0)
        case "memory":
            torch.empty(2**42, dtype=torch.uint8)
        case "hang":
            time.sleep(3600)
        case "print":
            os.write(1, b"\x00\xff\x1b[2J poison-garbage \n" * 10_000)
            os.write(2, b"\x00\xff\x1b[2J poison-garbage \n" * 10_000)


@register_task("watched")
class Watched(LinearFunctionalTask):
    """An exponential memory whose batches are watched."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How long; the planner takes it at its word, and so every length is a pack of its own."""

        horizon: int = setting(1_000_000, "a hundred thousand times the sequence length", at_least=200_000)

    weight_power = 0.0
    variance = 1.0

    @property
    def horizon(self) -> int:
        return int(self.config.horizon) // 100_000

    def kernel(self) -> Tensor:
        return torch.exp(-torch.arange(self.horizon, dtype=torch.float64))

    def white_noise(self, stream: Stream, index: int, size: int) -> Tensor:
        if stream.name == TRAIN and size not in (SEQUENCES, MANY):  # a look at the task is no training
            watch(self.config.horizon, index)
        return super().white_noise(stream, index, size)


@functools.cache
def letters() -> Corpus:
    """A text of four letters in which each follows one of two others."""
    luck, text = random.Random(7), ["a"]
    for _ in range(4000):
        text.append("abcd"[("abcd".index(text[-1]) * 2 + luck.randrange(2)) % 4])
    return Corpus.of(text[:2000], text[2000:3000], text[3000:])


@register_task("watched_text")
class WatchedText(TextTask):
    """The next letter of a text, with states that are carried from window to window; its batches are watched."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Letters of a window."""

        horizon: int = setting(10, "letters of a window", at_least=2)

    def load(self) -> Corpus:
        return letters()

    @property
    def horizon(self) -> int:
        return int(self.config.horizon)

    def draw(self, stream: Any, index: int, size: int) -> Batch:
        if stream.name == TRAIN and size not in (SEQUENCES, MANY):  # a look at the task is no training
            watch(self.config.horizon, index)
        return super().draw(stream, index, size)
