"""Images whose pixels are read one by one in a fixed disorder."""

from __future__ import annotations

import numpy as np

from memsweep.data.images.classification import SequentialImages


class PermutedImages(SequentialImages):
    """Images pixel by pixel, in the permutation of the published code: nothing near stays near.

    The permutation is the first that numpy's ``RandomState`` of this seed gives, a generator whose numbers numpy has
    promised to keep; seed 1234 is that of the experiments with unitary and orthogonal networks.
    """

    @property
    def order(self) -> str:
        return "pixels"

    @property
    def permutation_seed(self) -> int:
        seed: int = self.config.permutation_seed
        return seed

    def places(self) -> np.ndarray:
        height, width, _ = self.shape
        return np.random.RandomState(self.permutation_seed).permutation(height * width)
