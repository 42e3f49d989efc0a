"""The share of a GPU that a pack gets: the requested one, or more if a measurement shows that it needs more memory.

Ray counts shares of a GPU, but does not limit the memory of a process. So before a study with a fraction of a GPU
starts, a few steps of its largest programs run on a whole GPU, and the share is raised if it is too small. Each process
is then limited to its part of the memory: a pack that needs more than measured fails alone.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.errors import ConfigError
from memsweep.models.module.in_memory import put_all
from memsweep.sweep.planning.plan import programs as by_program
from memsweep.sweep.planning.resources import on_card
from memsweep.sweep.worker.job import code_of
from memsweep.sweep.worker.limits import GIB

if TYPE_CHECKING:
    from memsweep.config.schema.study import ResourcesConfig
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.sweep.planning.plan import Pack

STEPS = 3
"""Training steps of a measurement: the optimizer allocates its state in the first, and later ones need no more."""
PROGRAMS = 8
"""Largest number of programs that are measured, those of the most states first."""
MARGIN = 1.25
"""Factor on the measured memory: later steps may need more because of fragments between allocations."""
PATIENCE = 120.0
"""Seconds for a node to come, a process to start there and to measure; packs of all kinds wait meanwhile."""

_log = logging.getLogger("memsweep")


@dataclass(frozen=True)
class Need:
    """Measured memory, in bytes.

    Attributes:
        tensors: the most that torch held on the card.
        process: what a process takes on a card beside them: CUDA's context and libraries.
        card: the card's memory.
    """

    tensors: int
    process: int
    card: int

    def share(self, asked: float) -> Share:
        """The share of a GPU that a pack gets: the requested one, or more if it needs more.

        Raises:
            ConfigError: one pack alone needs more than the card has.
        """
        wanted = self.process + MARGIN * self.tensors
        if wanted > self.card:
            raise ConfigError(
                [
                    f"a pack needs {wanted / GIB:.1f} GiB of a card's memory (measured, with a margin of "
                    f"{MARGIN - 1:.0%}), and the card has {self.card / GIB:.1f} GiB: lower training.batch_size or "
                    "perturbation.test_size, share the data out (resources.workers, strategy: data), or compute on "
                    "CPUs (resources.gpus=0)."
                ],
                source="the resources of this study",
            )
        share = max(asked, 1 / int(self.card / wanted))
        return Share(share, self.card // on_card(share) - self.process)


@dataclass(frozen=True)
class Share:
    """A process' part of a card.

    Attributes:
        card: share of the card, in (0, 1].
        tensors: bytes that torch may hold on it.
    """

    card: float
    tensors: int


def programs(packs: Iterable[Pack]) -> list[list[dict[str, Any]]]:
    """The largest programs of these packs, shortened to a few steps: trials as ``to_dict`` writes them."""
    from memsweep.trial import program

    found: dict[str, list[TrialConfig]] = {}
    for pack in packs:
        for trials in by_program(pack.trials):
            group = [trial.config for trial in trials]
            found[program(group[0])] = max(found.get(program(group[0]), []), group, key=_states)
    largest = sorted(found.values(), key=_states, reverse=True)[:PROGRAMS]
    return [[to_dict(_probed(config)) for config in group] for group in largest]


def _states(group: Sequence[TrialConfig]) -> float:
    """About how many states a training step computes; only for the order of the programs."""
    return sum(
        trial.training.seeds
        * trial.training.batch_size
        * float(getattr(trial.task, "horizon", 100))
        * float(getattr(trial.model, "width", 1))
        for trial in group
    )


def _probed(config: TrialConfig) -> TrialConfig:
    """The trial cut short, without the chain, whose value moves no shape."""
    return dataclasses.replace(shortened(config, STEPS, config.perturbation.radii.count, 1), chain=None)


def shortened(config: TrialConfig, steps: int, radii: int, ascent_steps: int) -> TrialConfig:
    """The same shapes with at most so many steps and radii; nothing ends the training before them."""
    whole, moved = config.training, config.perturbation
    steps = min(steps, whole.steps)
    every = min(whole.validate_every, max(1, steps))
    training = dataclasses.replace(whole, steps=steps, validate_every=every, until=0, turns=(), patience=0)
    # a chain gives its trials a loss of their own to stop below
    training = dataclasses.replace(training, stop_below=0.0, smallest_steps=steps, smallest_rate=0.0)
    perturbation = dataclasses.replace(
        moved,
        radii=dataclasses.replace(moved.radii, count=min(radii, moved.radii.count)),
        ascent_steps=min(ascent_steps, moved.ascent_steps),
        stronger_every=0,  # it takes no larger slices, and as long however few radii there are
    )
    chain = config.chain and dataclasses.replace(config.chain, earlier=())  # a first link needs no other's result
    return dataclasses.replace(config, training=training, perturbation=perturbation, chain=chain)


def probe(
    groups: Sequence[Sequence[dict[str, Any]]], workspace: Path, code: Mapping[str, Callable[..., Any]] | None = None
) -> Need:
    """Measure programs on the GPU of this process, which no other process may use meanwhile.

    Args:
        groups: trials as ``to_dict`` writes them: this process knows the workspace's own classes from here on.
        workspace: the study's.
        code: as of ``PackJob``.

    Raises:
        ConfigError: one of them does not even fit alone.
        Exception: an error of the task's or the model's code.
    """
    import torch

    from memsweep import registry
    from memsweep.trial import RunOptions, run_pack

    registry.discover(workspace)
    put_all(code or {})
    for group in groups:
        try:
            run_pack([trial_from_dict(data) for data in group], RunOptions(device="cuda"))
        except torch.OutOfMemoryError as error:
            raise ConfigError(
                [
                    f"a pack does not fit on a card: {str(error).splitlines()[0]} Lower training.batch_size or "
                    "perturbation.test_size, or compute on CPUs (resources.gpus=0)."
                ],
                source="the resources of this study",
            ) from error
        torch.cuda.empty_cache()
    free, card = torch.cuda.mem_get_info()
    return Need(torch.cuda.max_memory_reserved(), card - free - torch.cuda.memory_reserved(), card)


def one_process(resources: ResourcesConfig, card: float | None = None) -> dict[str, Any]:
    """Ray's options of a task in a process of its own, on a node where such packs run; with another share of a GPU."""
    return {
        "num_cpus": resources.cpus,
        "num_gpus": resources.card if card is None else card,
        "resources": {name: share for name, share in resources.bundle.items() if name.startswith("accelerator_type")},
        "label_selector": resources.selector or None,
        "max_calls": 1,  # it frees its memory on the GPU at its end
        "max_retries": 0,
    }


def fitted(resources: ResourcesConfig, packs: Iterable[Pack], workspace: Path) -> tuple[ResourcesConfig, int]:
    """Resources with a share of a GPU that a pack fits into, after a measurement on a GPU of the Ray cluster.

    Returns:
        The resources, and the bytes that torch may hold in each process; 0 for no limit, if no GPU is shared, or none
        could be measured in time.

    Raises:
        ConfigError: a pack needs more than a card.
    """
    if resources.card in (0.0, 1.0):
        return resources, 0
    import ray
    from ray.exceptions import GetTimeoutError, RayTaskError

    packs = [*packs]
    code = code_of(trial.config for pack in packs for trial in pack.trials)
    asked: Any = ray.remote(**one_process(resources, card=1.0))(probe).remote(programs(packs), workspace, code)
    try:
        need: Need = ray.get(asked, timeout=PATIENCE)
    except RayTaskError as error:
        raise error.cause from None
    except GetTimeoutError:
        ray.cancel(asked, force=True)
        _log.warning(
            "no node measured within %.0f s what a pack takes of a card: %d share it as asked, without a limit",
            PATIENCE,
            on_card(resources.card),
        )
        return resources, 0
    share = need.share(resources.card)
    _log.log(
        logging.WARNING if share.card > resources.card else logging.INFO,
        "a pack takes up to %.2f GiB of a card's %.1f GiB, by a probe of %d steps: %d at once on each card%s",
        (need.process + MARGIN * need.tensors) / GIB,
        need.card / GIB,
        STEPS,
        on_card(share.card),
        f", not the {on_card(resources.card)} asked for" if share.card > resources.card else "",
    )
    if resources.workers > 1:
        return dataclasses.replace(resources, gpus_per_worker=share.card), share.tensors
    return dataclasses.replace(resources, gpus=share.card), share.tensors


def hold_to(tensors: int) -> None:
    """Limit the bytes of tensors of this process on its GPU (0: no limit); more is an out-of-memory error."""
    if tensors:
        import torch

        card = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, tensors / card))
