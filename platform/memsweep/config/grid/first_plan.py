"""First plans of a study that is to be decided: what it leaves out of horizons, widths, seeds, radii and effort."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from memsweep import registry
from memsweep.config.core.merge import as_mapping, leaves, merge, put
from memsweep.config.core.problems import lies_in, sentence
from memsweep.config.core.reflect import config_of, keys
from memsweep.config.grid.budget import BUDGET_KEY
from memsweep.config.grid.expand import expand
from memsweep.config.schema.axes import ROWS, root
from memsweep.config.schema.chain import CHAIN
from memsweep.config.schema.trial import TrialConfig

HORIZON, WIDTH, SEEDS = "task.horizon", "model.width", "training.seeds"
_STRONGER = "perturbation.stronger_every"
WIDTHS, TOP = (4, 8, 16, 32), 16
SIZES = ((4, WIDTHS, 5), (4, WIDTHS, 3), (3, (4, 16, 32), 3), (2, (4, 16, 32), 3))
"""Horizons, widths and seeds: the least that the rule can judge, and what a short limit pays for.

Widths span a factor of 8, as horizons do: over less, a slope in the width can only support *stable*. Horizons come at
width ``TOP``, which costs less than the largest, and of which seeds differ less (docs/evidence/decide.md, an LSTM's).
Of a smaller plan, rounds use every trial on the way to the next one but the smaller widths at its longest horizon. The
width that it lacks lies in the middle of its widest gap, where a round adds widths first.
"""
EARLIER = ((4, (4, 6, 8, 12), 5), (4, (4, 6, 8, 12), 3), (3, (4, 8, 12), 3), (2, (4, 8, 12), 3))
"""Those of versions before 30 November 2026: what was begun with them goes on."""
_SETTINGS = {
    "perturbation.radii.from": 0.01,
    "perturbation.radii.to": 3,
    "perturbation.radii.count": 8,
    "perturbation.starts": 0,
    "perturbation.ascent_steps": 2,
}
"""A short search: rounds repair it where it is too short."""
_LONG = 4096
"""Steps of the memory that its time scale is read off; a longer one is taken to be so long."""
_SHORTEST, _DOUBLINGS = 3, 4
_ANY = {"name": "diagonal_rnn"}
"""A model of any task: the memory does not depend on it."""


def first_plans(
    base: Mapping[str, Any],
    axes: Mapping[str, Any],
    said: Collection[str],
    problems: list[str],
    sizes: Sequence[tuple[int, Sequence[int], int]] = SIZES,
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The trial and the axes of a study with what it leaves out, then those of smaller plans, the largest first.

    Where it leaves out horizons or widths, every width comes at the longest horizon, and every horizon at one width,
    ``TOP`` or the largest that the study says: the cells that decide. The search is checked at the ends of both axes,
    which move a slope most: a check costs up to seven times what it checks.

    Args:
        base, axes: of the study, as it says them.
        said: paths of the fields that the study or the command line sets.
        problems: gets what is missing.
        sizes: of the plans where they are left out, as ``SIZES``.
    """
    left = [
        path
        for path in (*_SETTINGS, SEEDS, HORIZON, WIDTH, _STRONGER)
        if not is_said(path, said, axes) and _holds(path, base) and _has(path, base, said)
    ]
    horizons = _horizons(merge(TrialConfig, base), axes, problems) if HORIZON in left else []
    plans: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for count, widths, seeds in sizes:
        plan = merge(TrialConfig, base)
        for path, value in {**_SETTINGS, SEEDS: seeds}.items():
            if path in left:
                put(plan, path.split("."), value)
        found = horizons[:count], widths if WIDTH in left else ()
        sized = plan, _sized(plan, axes, *found, at_ends=_STRONGER in left)
        if sized not in plans:
            plans.append(sized)
    return plans


def _sized(
    base: Mapping[str, Any], axes: Mapping[str, Any], horizons: Sequence[int], widths: Sequence[int], *, at_ends: bool
) -> dict[str, Any]:
    """The axes with the sizes that were found.

    Args:
        base, axes: of the plan.
        horizons, widths: that were found, increasing; empty where the study says them.
        at_ends: whether the search is checked at the ends of the axes alone.
    """
    found = {path: [*values] for path, values in ((HORIZON, horizons), (WIDTH, widths)) if values}
    along, across = (_numbers({**axes, **found}.get(path, ())) for path in (HORIZON, WIDTH))
    if not found or not along or not across or ROWS in axes or base.get(CHAIN):  # a chain goes along an axis of its own
        return {**axes, **found}
    top = TOP if TOP in widths else across[-1]
    cells = [(horizon, top) for horizon in along] + [(along[-1], width) for width in across if width != top]
    ends = {(along[0], top), *((along[-1], width) for width in (across[0], top, across[-1]))}
    unchecked = {"perturbation": {"stronger_every": 0}}
    rows = [
        {"task": {"horizon": horizon}, "model": {"width": width}}
        | (unchecked if at_ends and (horizon, width) not in ends else {})
        for horizon, width in cells
    ]
    return {**{path: values for path, values in axes.items() if path not in (HORIZON, WIDTH)}, ROWS: rows}


def _numbers(values: Sequence[Any]) -> list[int]:
    """The values of an axis, increasing; empty where one is no whole number, which the check of the trials tells."""
    return sorted(values) if all(type(value) is int for value in values) else []


def is_said(path: str, said: Collection[str], axes: Mapping[str, Any]) -> bool:
    """Whether a field, or a part of it, is set: by the study, or by an axis, which may set it among others."""
    of_axes = (leaf for axis, values in axes.items() for value in values for leaf in _paths(axis, value))
    return any(lies_in(leaf, path) for leaf in (*said, *of_axes))


def _paths(axis: str, value: Any) -> list[str]:
    return [path for path, _ in leaves(value, root(axis))]


def _holds(path: str, base: Mapping[str, Any]) -> bool:
    """Whether the sections on the way are mappings. The check of the trials tells what else stands there."""
    node: Any = base
    for key in path.split(".")[:-1]:
        node = as_mapping(node.get(key, {}))
        if not isinstance(node, Mapping):
            return False
    return True


def _has(path: str, base: Mapping[str, Any], said: Collection[str]) -> bool:
    """Whether task and model have such a field, or the grid chooses them; and no budget of parameters finds it."""
    name, _, field = path.partition(".")
    part = config_of(TrialConfig, keys(TrialConfig)[name], base.get(name, {})) if path in (HORIZON, WIDTH) else None
    by_budget = path == WIDTH and any(lies_in(leaf, f"model.{BUDGET_KEY}") for leaf in said)
    return not by_budget and (part is None or field in keys(part))


def longest(task: Mapping[str, Any]) -> Any:
    """A task at a horizon beyond those of studies; None where it cannot be had."""
    trials = expand({"task": {**task, "horizon": _LONG}, "model": _ANY}, {}, [])
    return registry.get(registry.TASK, trials[0].task.name)(trials[0].task) if trials else None


def scale_of(task: Any) -> float | None:
    """The time scale of the memory of a task, see ``time_scale``; of one from ``longest`` as far as anything looks.

    None, too, for a kernel that is no real number at each lag: the check of trials tells what it is.
    """
    from torch import Tensor

    from memsweep.config.grid.time_scale import time_scale

    kernel = task.kernel()
    if not isinstance(kernel, Tensor) or kernel.shape != (task.horizon,) or kernel.is_complex():
        return None
    return time_scale(kernel.detach().double().numpy())


def _horizons(base: Mapping[str, Any], axes: Mapping[str, Any], problems: list[str]) -> list[int]:
    """Four horizons, each twice the one before, from the least one of a limit slope."""
    rule = "is left out, and decide finds it by the time scale of one memory"
    if varied := [
        axis
        for axis, values in axes.items()
        if any(lies_in(p, "task") for value in values for p in _paths(axis, value))
    ]:
        problems.append(sentence(HORIZON, f"{rule}. The grid has several ({', '.join(varied)}): name the horizons"))
        return []
    task = as_mapping(base.get("task"))
    made = longest(task) if isinstance(task, dict) else None
    if made is None:
        return []  # the check of the trials tells what is wrong with the task
    if not hasattr(made, "kernel"):
        problems.append(sentence(HORIZON, f"{rule}. The task {made.config.name} has no memory: name the horizons"))
        return []
    from memsweep.config.grid.time_scale import USABLE_SCALES

    scale = scale_of(made)
    if scale is None:
        rule = f"{rule}. This one is zero, or no finite number at each of {_LONG:,} lags"
        problems.append(sentence(HORIZON, f"{rule}: name the horizons, such as {HORIZON}=32,64,128,256"))
        return []
    if scale == math.inf:
        rule = f"{rule}. This one has none: within {_LONG:,} steps it does not fall as fast as a power of -1/2"
        problems.append(sentence(HORIZON, f"{rule}. Name the horizons, such as {HORIZON}=32,64,128,256"))
        return []
    first = max(_SHORTEST, math.ceil(USABLE_SCALES * scale))
    return [first * 2**power for power in range(_DOUBLINGS)]
