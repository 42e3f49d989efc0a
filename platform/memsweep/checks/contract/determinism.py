"""Determinism: equal calls give equal bits, in evaluation and in training, and leave everything as it was."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from memsweep.checks.apart import Marked, difference, size_of
from memsweep.checks.finding import Finding, finding
from memsweep.checks.part import Check
from memsweep.checks.subject import Subject
from memsweep.config.load.foreign import in_one_line
from memsweep.errors import listed
from memsweep.models import contracts
from memsweep.models.base import Model
from memsweep.models.training_mode import SAME_WEIGHTS, in_training, same_weights, seeded, tensors_of

_NAMED = 3
"""Tensors that a sentence names."""


def determinism(subject: Subject, seconds: float) -> Finding:
    """Whether the same input gives the same bits again, and leaves the module as it was."""
    inputs = subject.noise(2, subject.length(64))
    dtype = subject.reference
    module = subject.fresh(dtype)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    others = subject.noise(2, subject.length(64), 9)
    (again,) = contracts.determinism(Marked(lambda given: subject(given, dtype, module)), inputs, others)
    # in the module's own precision and place, where it gets this tensor and no copy
    (over,) = contracts.overwriting(lambda given: subject(given, dtype, module), subject.cast(inputs, dtype), others)
    changed = [name for name, value in module.state_dict().items() if not _same(value, before[name])]
    alike = _same(*(subject(inputs.clone(), dtype, subject.fresh(dtype)) for _ in range(2)))
    kept, in_training_words = _in_training(subject, inputs)
    seeded_by = _reseeds(subject, inputs)
    same = subject.other is not None and same_weights(subject.build(), subject.other())
    numbers = {
        "difference": again.size,
        "inputs_changed": over.size,
        "changed_by_a_call": changed,
        "equal_when_built_again": alike,
        "training": kept,
        "reseeds": seeded_by,
        "equal_for_seeds": same,
    }
    faults = [f"It {again.words}."] if again.size else in_training_words
    if over.size:
        faults.insert(0, f"It {over.words}.")
    if seeded_by:
        faults.append(
            f"A call sets {seeded_by} random generator to a fixed state (such as by manual_seed): whoever draws behind "
            "it draws the same numbers again and again. Seed where the program starts."
        )
    if changed:
        faults.append(f"A call changes {listed(changed, _NAMED)}, in eval mode and without gradients.")
    if not faults and not alike:
        faults.append("Built again from the same seed it gives other outputs: its weights come from elsewhere, too.")
    well = "The same bits from call to call; a call changes no weight and no buffer."
    return finding("determinism", well, numbers, faults=faults, notes=[f"It {SAME_WEIGHTS}."] if same else [])


def _in_training(subject: Subject, inputs: Tensor) -> tuple[float | None, list[str]]:
    """How far equal calls in training are apart, and what is wrong there; None where it does not run."""
    dtype = subject.reference
    module = subject.fresh(dtype)

    def run(given: Tensor) -> Tensor:
        if isinstance(module, Model) and module.training:
            module.start_step([0], 0)
        return subject(given.clone(), dtype, module)

    try:
        found = in_training(module, Marked(run), inputs)
        remembered = _remembers(module, run, inputs)
    except Exception as error:  # foreign code may raise anything
        return None, [f"In training mode it fails: {in_one_line(error)[:250]}."]
    if found.breach or remembered <= found.tolerance:
        return found.kept, [f"It {found.breach}."] if found.breach else []
    return max(found.kept, remembered), [
        f"In training, outputs depend on the inputs of the call before (by {size_of(remembered)}): it "
        "keeps a state in a buffer. Start each call from a state of zero."
    ]


def _remembers(module: nn.Module, run: Callable[[Tensor], Tensor], inputs: Tensor) -> float:
    """How far outputs in training differ after calls with other inputs, with the same weights and random numbers."""
    before = {name: value.detach().clone() for name, value in tensors_of(module).items()}
    outputs = []
    module.train()
    try:
        for earlier in (inputs.flip(0, 1), inputs * 0):
            _restore(module, before)
            for given in (earlier, inputs):
                with torch.no_grad(), seeded(0):
                    answer = run(given)
            outputs.append(answer)
    finally:
        module.eval()
        _restore(module, before)
    return difference(*outputs)


def _restore(module: nn.Module, before: Mapping[str, Tensor]) -> None:
    for name, value in tensors_of(module).items():
        if name in before and before[name].shape == value.shape:
            value.data.copy_(before[name])


def _reseeds(subject: Subject, inputs: Tensor) -> str:
    """Whose generators a call sets to one state, in evaluation or in training: ``torch's``; empty: nobody's."""
    states = []
    module = subject.fresh(subject.reference)
    for training in (False, True):
        module.train(training)
        for seed in (1, 2):
            with seeded(seed):
                try:
                    subject(inputs, subject.reference, module)
                except Exception:  # it fails in training, which is said already
                    continue
                states.append(
                    (torch.get_rng_state(), np.random.get_state(legacy=False)["state"]["key"], random.getstate()[1])
                )
    for one, other in zip(states[::2], states[1::2], strict=False):
        alike = (torch.equal(one[0], other[0]), np.array_equal(one[1], other[1]), one[2] == other[2])
        found = [name for name, same in zip(("torch's", "numpy's", "Python's"), alike, strict=True) if same]
        if found:
            return " and ".join(found)
    return ""


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


CHECK = Check("determinism", determinism, place=20, share=0.02, needs=("shapes",))
