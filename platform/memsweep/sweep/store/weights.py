"""The trained weights of a trial as the bytes of one safetensors file: ``<seed>/<the module's own name>`` -> tensor.

A trial's replicas share a file, because a bucket answers a request for a file, not for a byte. The format runs no code
when it is read (https://github.com/huggingface/safetensors).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from memsweep.errors import StoreError
from memsweep.sweep.store.record import MEND

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "weights"
"""The folder of these files in a study's, and their name in a record's ``files``."""
SUFFIX = "safetensors"


def to_safetensors(weights: Mapping[int, Mapping[str, Tensor]]) -> bytes:
    """The file that holds these weights, seed -> name -> tensor. Equal weights give equal bytes."""
    from memsweep.learning.state.weights_file import to_bytes

    return to_bytes({f"{seed}/{name}": value for seed, named in weights.items() for name, value in named.items()})


def from_safetensors(data: bytes, where: str) -> dict[int, dict[str, Tensor]]:
    """The weights in the bytes of a file that ``to_safetensors`` wrote, seed -> name -> tensor.

    Raises:
        StoreError: it is another file; the message names it.
    """
    from memsweep.learning.state.weights_file import from_bytes

    weights: dict[int, dict[str, Tensor]] = {}
    try:
        for key, value in from_bytes(data).items():
            seed, _, name = key.partition("/")
            weights.setdefault(int(seed), {})[name] = value
    except ValueError as error:
        raise StoreError(f"{where} holds no weights of a trial ({error}). {MEND}") from error
    return weights
