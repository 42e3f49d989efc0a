"""Whether a model's training batches may be computed in the pieces that a study asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memsweep import registry


def micro_batch_problems(model: Any, training: Any) -> Iterator[str]:
    """Why ``training.micro_batch`` does not do for a model.

    Args:
        model, training: their Configs.
    """
    if not 0 < training.micro_batch < training.batch_size:
        return
    if registry.get(registry.MODEL, model.name).whole_batch(model):
        yield (
            f"training.micro_batch is {training.micro_batch}, but the model {model.name}, as it is set here, must see "
            f"a training batch ({training.batch_size} sequences) at once: what it makes of a sequence depends on the "
            "others (normalization over the batch, dropout that is drawn for all of it). Use 0, or a smaller batch_size"
        )
