"""The handwritten digits that scikit-learn ships, read as sequences: real data without a download."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from memsweep.config.core.fields import setting
from memsweep.data.api import ORDERS, TEST, TRAIN, VALIDATION, Labelled, PermutedImages, SequentialImages, Stream
from memsweep.registry import register_task

HELD_OUT = 300  # images of the validation and of the test split, each; the other 1197 train


@functools.cache
def _splits() -> Mapping[str, Labelled]:
    from sklearn.datasets import load_digits  # takes seconds, which a command that lists tasks need not wait for

    data = load_digits()
    everything = Labelled(data.images[..., None], data.target.astype(np.int64))
    rest, test = everything.split(HELD_OUT, Stream(0, "digits: test split"))
    train, validation = rest.split(HELD_OUT, Stream(0, "digits: validation split"))
    return {TRAIN: train, VALIDATION: validation, TEST: test}


@register_task("digits")
class Digits(SequentialImages):
    """Classify the digit of an image of 8 x 8 pixels, read row by row or pixel by pixel."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Digits of scikit-learn: 1197 to train on, 300 to validate, 300 to test, the same for every seed."""

        order: str = setting(
            "rows", "how an image is read: rows (8 steps of 8 numbers), pixels (64 steps of 1)", choices=ORDERS
        )

    shape = (8, 8, 1)
    brightest = 16.0

    def load(self) -> Mapping[str, Labelled]:
        return _splits()


@register_task("permuted_digits")
class PermutedDigits(PermutedImages):
    """Classify the digit of an image of 8 x 8 pixels, read one by one in a fixed permutation.

    A small permuted MNIST, for machines without its files.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Digits of scikit-learn, 64 pixels in a fixed permutation: 1197 to train on, 300 to validate, 300 to test."""

        permutation_seed: int = setting(
            1234,
            "decides the permutation of the pixels, as that of permuted_mnist does (numpy's RandomState)",
            at_least=1,
            at_most=2**31 - 1,
        )

    shape = (8, 8, 1)
    brightest = 16.0

    def load(self) -> Mapping[str, Labelled]:
        return _splits()
