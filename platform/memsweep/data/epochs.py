"""Which of a finite set's members make a batch."""

from __future__ import annotations

import numpy as np

from memsweep.streams import TRAIN, Stream


def epoch_rows(stream: Stream, index: int, size: int, count: int) -> np.ndarray:
    """Positions of the members of batch ``index`` of a stream, ``[min(size, count)]``, of a set of ``count``.

    Batch ``index`` of the training stream is a piece of an epoch: every epoch is a permutation of the set that the
    stream decides, and what does not fill a batch is left out of that epoch. The other streams go through their set in
    a fixed order, round and round: batch 0 is the first ``size`` members, whatever the seed. A size beyond the number
    of members gives all of them, once.
    """
    if size >= count:
        return np.arange(count) if stream.name != TRAIN else stream.generator(index).permutation(count)
    if stream.name != TRAIN:
        return (index * size + np.arange(size)) % count
    epoch, place = divmod(index, count // size)
    return stream.generator(epoch).permutation(count)[place * size : (place + 1) * size]
