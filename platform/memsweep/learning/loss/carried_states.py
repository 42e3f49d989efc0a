"""Sequences that are read window by window: the states in which a model ends one window begin the next.

The gradient stops where a window begins (truncated backpropagation through time), so that memory is that of one
window, however long the sequences are. In training, the states go on from batch to batch; in a batch for validation
or for a test all windows of a sequence follow one another, from states of zero.

Letters: N leading dimensions (replicas, then copies), R sequences (runs), W windows of each, T time, M width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.data.task import Batch, CarriedTask
from memsweep.learning.loss.gradient_accumulation import Accumulated
from memsweep.learning.loss.problem import CHUNK, SampledProblem
from memsweep.models.base import Model, Weights
from memsweep.streams import TRAIN, Stream


@dataclass(frozen=True)
class Windows(Batch):
    """A batch of windows, ``[R W, T, I]``: those of one sequence behind each other.

    Attributes:
        runs: R.
        begins: the sequences begin here; otherwise they go on where the batch before ended.
    """

    runs: int
    begins: bool


class CarriedProblem(SampledProblem):
    """Models that carry their states, on a task whose sequences are longer than its windows."""

    def __init__(self, task: CarriedTask, dtype: torch.dtype, chunk: int = CHUNK) -> None:
        super().__init__(task, dtype, chunk)
        self.long: CarriedTask = task

    def sequences(self, stream: Stream, index: int, size: int) -> Windows:
        """The windows of a batch.

        Raises:
            ValueError: a task's batch does not hold what the task says of it.
        """
        drawn = self.long.draw(stream, index, size)
        held = len(drawn.inputs)
        if stream.name != TRAIN:
            runs = self.long.runs(size)
            if runs < 1 or held % runs:
                raise ValueError(
                    f"the task {self._name!r} drew {held} windows of {runs} sequences, which must all have as many "
                    "windows: its runs(size) must divide the windows that draw(stream, index, size) gives"
                )
            return Windows(drawn.inputs, drawn.targets, runs, begins=True)
        if held != size:
            raise ValueError(
                f"the task {self._name!r} drew {held} training sequences side by side, not training.batch_size "
                f"({size}): states go on row by row, so every batch must have all rows. Use a smaller batch_size"
            )
        return Windows(drawn.inputs, drawn.targets, held, begins=self.long.begins(index, size))

    @property
    def _name(self) -> str:
        return str(getattr(self.long.config, "name", type(self.long).__name__))

    def chosen(self, sequences: Batch, rows: Tensor) -> Batch:
        raise TypeError(
            f"windows of the task {self._name!r} follow one another and cannot be chosen apart: training.train_size "
            "must be 0, and resources.strategy replicas"
        )

    def splits(self, model: Model) -> bool:
        del model  # states are carried out of no kernel that keeps none
        return True

    def _repeated(self, sequences: Batch, count: int) -> Windows:
        rows = torch.arange(count, device="cpu") % len(sequences.inputs)
        return Windows(sequences.inputs[rows], sequences.targets[rows], count, begins=True)

    def prepared(self, sequences: Batch) -> Windows:
        here = super().prepared(sequences)
        assert isinstance(sequences, Windows), "please report this: windows of nobody's sequences"
        return Windows(here.inputs, here.targets, sequences.runs, sequences.begins)

    def first_states(self, model: Model, weights: Weights, size: int) -> Tensor:
        """Zeros of the shape of the model's states: a model alone knows how many numbers they are."""
        one_step = torch.zeros(1, 1, self.long.inputs, dtype=self.dtype)
        with torch.no_grad():
            _, states = model.outputs_from(weights, one_step, None)
        return states.new_zeros((*states.shape[:-2], size, states.shape[-1]))

    def loss(self, model: Model, weights: Weights, data: Batch, targets: Tensor, live: Tensor | None = None) -> Tensor:
        """Mean over all windows, of models that begin with states of zero; the gradient is cut at every window."""
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
        del targets, live  # one task for all replicas, and no kernel that passes replicas over
        found = Accumulated(model, weights)

        def add(outputs: Tensor, part: Batch, share: float) -> None:
            found.add(self.task.loss(outputs, part) * share)

        after = self._through(model, found.own, data, states, add)
        return found.loss(), after

    @torch.no_grad()
    def metrics(self, model: Model, weights: Weights, data: Batch) -> dict[str, Tensor]:
        totals: dict[str, Tensor] = {}

        def add(outputs: Tensor, part: Batch, share: float) -> None:
            for name, value in self.task.metrics(outputs, part).items():
                totals[name] = totals.get(name, torch.zeros_like(value)) + share * value

        self._through(model, weights, data, None, add)
        return totals

    def _through(
        self,
        model: Model,
        weights: Weights,
        data: Batch,
        states: Tensor | None,
        use: Callable[[Tensor, Batch, float], None],
    ) -> Tensor:
        """Run window after window, some sequences at a time.

        Args:
            model, weights, data: as for ``loss``.
            states: ``[N, R, M]``, from which sequences go on that do not begin.
            use: called with the outputs of a window ``[N, R', T, O]``, the window, and its share of the batch.

        Returns:
            The states after the last windows, ``[N, R, M]``.
        """
        assert isinstance(data, Windows), "please report this: windows of nobody's sequences"
        inputs_RWTI, targets_RW = (one.unflatten(0, (data.runs, -1)) for one in (data.inputs, data.targets))
        windows, after = inputs_RWTI.shape[1], []
        for first in range(0, data.runs, self.chunk):
            last = min(first + self.chunk, data.runs)
            now = None if data.begins or states is None else states[..., first:last, :]
            for window in range(windows):
                part = Batch(inputs_RWTI[first:last, window].contiguous(), targets_RW[first:last, window])
                outputs, now = model.outputs_from(weights, self._read(part.inputs), now)
                now = now.detach()
                use(outputs, part, (last - first) / len(data.inputs))
                del outputs  # or it would stay while the next window is computed
            assert now is not None, "please report this: sequences without windows"
            after.append(now)
        return torch.cat(after, -2)
