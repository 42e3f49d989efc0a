"""Batches of a finite set: epochs for training, a fixed order for validation and test."""

from __future__ import annotations

import numpy as np

from memsweep.streams import TRAIN, Stream


def epoch_rows(stream: Stream, index: int, size: int, count: int) -> np.ndarray:
    """Positions of the members of batch ``index`` of a stream, ``[min(size, count)]``, of a set of ``count``.

    Every epoch of the training stream is a permutation of the set that the stream decides, cut into batches; members
    that do not fill a batch are left out of that epoch. The other streams go through their set in a fixed order, again
    and again: batch 0 is the first ``size`` members for every seed. A size beyond ``count`` gives all members once.
    """
    if size >= count:
        return np.arange(count) if stream.name != TRAIN else stream.generator(index).permutation(count)
    if stream.name != TRAIN:
        return (index * size + np.arange(size)) % count
    epoch, place = divmod(index, count // size)
    return stream.generator(epoch).permutation(count)[place * size : (place + 1) * size]
