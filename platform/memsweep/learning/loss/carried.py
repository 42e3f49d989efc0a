"""Losses on long sequences that are read window by window, with states carried from window to window.

The gradient stops at the start of a window (truncated backpropagation through time), so memory is that of one window
for any length of the sequences. In training, states continue from batch to batch; a batch of validation or test holds
consecutive windows of each sequence, and starts from zero states.

Letters: N leading dimensions (replicas, then copies), R sequences (runs), W windows of each, T time, M width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from memsweep.data.functionals import LinearFunctionalTask
from memsweep.data.task import Batch, CarriedTask, Task, on_processor
from memsweep.learning.loss.base import CHUNK, TaskLoss
from memsweep.learning.loss.exact import ExactLoss
from memsweep.learning.loss.sampled import AccumulatedLoss, SampledLoss
from memsweep.models.base import Model, Weights
from memsweep.streams import TRAIN, Stream


@dataclass(frozen=True)
class Windows(Batch):
    """A batch of windows, ``[R W, T, I]``: the windows of one sequence are consecutive.

    Attributes:
        runs: R.
        begins: the sequences start here; otherwise they continue where the batch before ended.
    """

    runs: int
    begins: bool


class CarriedLoss(SampledLoss):
    """The mean loss over windows, of models that carry their states through each sequence."""

    def __init__(self, task: CarriedTask, dtype: torch.dtype, chunk: int = CHUNK) -> None:
        super().__init__(task, dtype, chunk)
        self.carried_task: CarriedTask = task

    @property
    def _name(self) -> str:
        return str(getattr(self.carried_task.config, "name", type(self.carried_task).__name__))

    def draw(self, stream: Stream, index: int, size: int) -> Windows:
        """The windows of a batch.

        Raises:
            ValueError: the task's batch has another number of windows than the task promises.
        """
        with on_processor():
            batch = self.carried_task.draw(stream, index, size)
        count = len(batch.inputs)
        if stream.name != TRAIN:
            runs = self.carried_task.runs(size)
            if runs < 1 or count % runs:
                raise ValueError(
                    f"the task {self._name!r} drew {count} windows of {runs} sequences, which must all have as many "
                    "windows: its runs(size) must divide the windows that draw(stream, index, size) gives"
                )
            return Windows(batch.inputs, batch.targets, runs, begins=True)
        if count != size:
            raise ValueError(
                f"the task {self._name!r} drew {count} training sequences side by side, not training.batch_size "
                f"({size}): states go on row by row, so every batch must have all rows. Use a smaller batch_size"
            )
        return Windows(batch.inputs, batch.targets, count, begins=self.carried_task.begins(index, size))

    def select(self, batch: Batch, rows: Tensor) -> Batch:
        raise TypeError(
            f"windows of the task {self._name!r} follow one another and cannot be chosen apart: training.train_size "
            "must be 0, and resources.strategy replicas"
        )

    def sample(self, stream: Stream, size: int, count: int) -> Windows:
        batch = self.draw(stream, 0, size)
        rows = torch.arange(count, device="cpu") % len(batch.inputs)
        return self.prepare(Windows(batch.inputs[rows], batch.targets[rows], count, begins=True))

    def splits(self, model: Model) -> bool:
        del model  # the one-pass kernels return no states
        return True

    def prepare(self, batch: Batch) -> Windows:
        assert isinstance(batch, Windows), "please report this: a batch of a carried task without its windows"
        prepared = super().prepare(batch)
        return Windows(prepared.inputs, prepared.targets, batch.runs, batch.begins)

    @property
    def has_distance(self) -> bool:
        return False  # what a window starts from differs, too

    def first_states(self, model: Model, weights: Weights, size: int) -> Tensor:
        """Zeros ``[N, size, M]``; M is read off one step, because only the model knows the size of its state."""
        one_step = torch.zeros(1, 1, self.carried_task.inputs, dtype=self.dtype)
        with torch.no_grad():
            _, states = model.outputs_from(weights, one_step, None)
        return states.new_zeros((*states.shape[:-2], size, states.shape[-1]))

    def loss(self, model: Model, weights: Weights, data: Batch, targets: Tensor, live: Tensor | None = None) -> Tensor:
        """Mean over all windows, of models that start with zero states; the gradient is cut at every window."""
        return self.loss_from(model, weights, data, targets, None, live)[0]

    def loss_from(
        self,
        model: Model,
        weights: Weights,
        data: Batch,
        targets: Tensor,
        states: Tensor | None,
        live: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        del targets, live  # one task for all replicas; these kernels do not skip replicas
        total = AccumulatedLoss(model, weights)

        def add(outputs: Tensor, window: Batch, share: float) -> None:
            total.add(self.task.loss(outputs, window) * share)

        after = self._run_windows(model, total.own, data, states, add)
        return total.loss(), after

    @torch.no_grad()
    def metrics(self, model: Model, weights: Weights, data: Batch) -> dict[str, Tensor]:
        totals: dict[str, Tensor] = {}

        def add(outputs: Tensor, window: Batch, share: float) -> None:
            for name, value in self.task.metrics(outputs, window).items():
                totals[name] = totals.get(name, torch.zeros_like(value)) + share * value

        self._run_windows(model, weights, data, None, add)
        return totals

    def _run_windows(
        self,
        model: Model,
        weights: Weights,
        data: Batch,
        states: Tensor | None,
        use: Callable[[Tensor, Batch, float], None],
    ) -> Tensor:
        """Run window after window, one chunk of sequences at a time.

        Args:
            model, weights, data: as for ``loss``.
            states: ``[N, R, M]``, from which sequences continue unless they begin in this batch.
            use: called with the outputs of a window ``[N, R', T, O]``, the window, and its share of the batch.

        Returns:
            The states after the last windows, ``[N, R, M]``.
        """
        assert isinstance(data, Windows), "please report this: a batch of a carried task without its windows"
        inputs_RWTI, targets_RW = (values.unflatten(0, (data.runs, -1)) for values in (data.inputs, data.targets))
        last_states = []
        for first in range(0, data.runs, self.chunk):
            last = min(first + self.chunk, data.runs)
            state = None if data.begins or states is None else states[..., first:last, :]
            for index in range(inputs_RWTI.shape[1]):
                window = Batch(inputs_RWTI[first:last, index].contiguous(), targets_RW[first:last, index])
                outputs, state = model.outputs_from(weights, self._read(model, window.inputs), state)
                state = state.detach()
                use(outputs, window, (last - first) / len(data.inputs))
                del outputs  # frees their memory before the next window is computed
            assert state is not None, "please report this: sequences without windows"
            last_states.append(state)
        return torch.cat(last_states, -2)


def task_loss_for(tasks: Sequence[Task], exact: bool, dtype: torch.dtype) -> TaskLoss[Any]:
    """The task loss of trials of one program.

    Args:
        tasks: one per trial; all equal when not exact.
        exact: the expected loss has a closed form (``TrialConfig.has_closed_form``).
        dtype: of weights and data.
    """
    if exact:
        return ExactLoss([task for task in tasks if isinstance(task, LinearFunctionalTask)], dtype)
    if tasks[0].carries_states:
        assert isinstance(tasks[0], CarriedTask), "a task that carries states is a CarriedTask"
        return CarriedLoss(tasks[0], dtype)
    return SampledLoss(tasks[0], dtype)
