"""One step of an ensemble's optimizer, from the gradient of its loss to its next weights.

The penalty of the amplitudes joins the gradient; a replica whose loss or gradient is not finite has diverged, and
stays where it is; the gradient is clipped, and the optimizer moves the weights. On a processor one compiled call does
all of it: in torch it is some fifty operations, whose calls take longer than the arithmetic of small models. Torch's
way is the oracle of the compiled one, and what runs elsewhere. The two agree within rounding.

Letters: P rows (replicas and dummies), S size of the flat weights, K groups of weights, the first one the training's.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from memsweep.config.schema.training import TrainingConfig
from memsweep.learning.training.learner import Learner
from memsweep.learning.training.optimizer import (
    Adam,
    AdamW,
    RMSprop,
    Settings,
    clipped,
    rate_factor,
    rates_at,
    settings_at,
)
from memsweep.recurrence.compiled.library import Kernel, readable


def update(learner: Learner, loss: Tensor, gradient: Tensor, step: int, training: TrainingConfig) -> None:
    """Set the learner to its state after a step: weights, optimizer, ratios, who is running, and the latest loss.

    Args:
        learner: before the step.
        loss: ``[P]``, of the batch at the learner's weights.
        gradient: ``[P, S]``, contiguous, of the loss and all penalties but that of the amplitudes; it may be changed.
        step: 0 ... steps - 1.
        training: of the pack.
    """
    settings, keep = settings_at(training, step), step % training.validate_every == 0
    factor = rate_factor(step, training.steps, training.schedule, training.warmup)
    kernel = CompiledUpdate.load(learner.weights.dtype) if learner.weights.is_cpu else None
    if kernel is None or type(learner.optimizer) not in KINDS:
        update_by_torch(learner, loss, gradient, settings, factor, keep)
    else:
        kernel(learner, loss, gradient, settings, factor, keep)
    learner.loss = loss


def update_by_torch(
    learner: Learner, loss: Tensor, gradient: Tensor, settings: Settings, factor: float, keep: bool
) -> None:
    """``update`` by torch's operations.

    Args:
        learner, loss, gradient: as for ``update``.
        settings: of the step.
        factor: of all learning rates, by the schedule.
        keep: whether the ratios of gradient to weight count for the quantiles, too.
    """
    weights = learner.weights
    if settings.amplitude_penalty:
        # the gradient of a sum of squares in closed form, without a graph
        gradient.add_(torch.where(learner.amplitudes, weights, 0.0), alpha=2.0 * settings.amplitude_penalty)
    learner.criterion.observe(weights, gradient, learner.running, keep)
    # a gradient is finite where its largest entry is; torch's norm of infinite order takes nine times as long
    healthy = torch.isfinite(loss) & torch.isfinite(gradient.abs().amax(-1))
    learner.diverged |= learner.running & ~healthy
    learner.running &= healthy
    moving = learner.running.unsqueeze(-1) & learner.ensemble.exists
    gradient = clipped(torch.where(moving, gradient, 0.0), settings.clip)
    rates = learner.groups.rates(rates_at(learner.rates, settings)) * factor * learner.plateau.factor.unsqueeze(-1)
    count = len(learner.ensemble.replicas)  # the rows behind them are dummies, which stay what they are
    moved = learner.optimizer.update(
        weights[:count],
        gradient[:count],
        learner.groups.spread(rates[:count]),
        learner.groups.decay(settings.weight_decay, weights),
        moving[:count],
    )
    learner.weights = torch.cat([moved, weights[count:]])
    learner.steps += learner.running


KINDS = {Adam: 0, AdamW: 1, RMSprop: 2}
"""The optimizers that the compiled call knows."""


@functools.lru_cache(maxsize=16)
def _as_tensor(*decays: float) -> Tensor:
    return torch.tensor(decays, dtype=torch.float64, device="cpu")


class CompiledUpdate(Kernel):
    """``update_by_torch`` in one call, for numbers in the processor's memory."""

    function = "update"  # UpdateCall of update.cpp
    numbers = ("kind", "rows", "replicas", "size", "groups", "entries")
    reals = ("penalty", "clip", "factor", "beta1", "beta2", "of_mean", "of_square", "epsilon")
    tensors = (
        *("weights", "loss", "gradient", "exists", "amplitudes", "rates", "plateau", "decay", "column", "entry"),
        *("mean", "square", "moved", "largest", "running", "diverged", "steps"),
    )

    def __call__(
        self, learner: Learner, loss: Tensor, gradient: Tensor, settings: Settings, factor: float, keep: bool
    ) -> None:
        """See ``update_by_torch``."""
        ensemble, weights, criterion = learner.ensemble, learner.weights, learner.criterion
        optimizer, groups = learner.optimizer, learner.groups
        assert isinstance(optimizer, Adam | RMSprop)
        moved = torch.empty_like(weights)
        running = learner.running.clone() if keep else learner.running  # before the step, for the kept ratios
        decays = _as_tensor(*groups.decays(settings.weight_decay))
        numbers = {
            **{"weights": weights, "loss": loss, "gradient": gradient, "moved": moved},
            **{"rates": groups.rates(rates_at(learner.rates, settings)), "plateau": learner.plateau.factor},
            **{"mean": getattr(optimizer, "mean", None), "square": optimizer.square, "largest": criterion.largest},
        }
        others = {
            **{"exists": ensemble.exists, "amplitudes": learner.amplitudes, "entry": criterion.entries},
            **({"column": groups.column} if groups.own else {}),
            **{"running": learner.running, "diverged": learner.diverged},
            **{"steps": learner.steps, "decay": decays},
        }
        self.run(
            readable(numbers, weights.dtype),
            [{name: each.data_ptr() for name, each in others.items()}],
            kind=KINDS[type(optimizer)],
            rows=len(weights),
            replicas=len(ensemble.replicas),
            size=ensemble.layout.size,
            groups=len(decays),
            entries=len(criterion.entries),
            penalty=settings.amplitude_penalty or 0.0,
            clip=settings.clip or 0.0,
            factor=factor,
            **optimizer.next_update(),
        )
        if keep:
            criterion.observe(weights, gradient, running, keep)
        learner.weights = moved
