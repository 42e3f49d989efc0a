"""The metric against the share of layers of one kind: a chart for each task, a line for each place of these layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import RANKING, LossRow, is_ranked, largest
from memsweep.report.naming.conditions import BETWEEN, masked
from memsweep.report.naming.numbers import figure
from memsweep.report.values.chart import Chart, chart
from memsweep.report.values.section import Section

WORDS = (
    "Stacks whose layers have units of two kinds, at their largest size: median over seeds, from the worst to the best "
    "seed. A line joins stacks in which the rarer kind has the first layer, or in which it has not; those with none of "
    "it, or with nothing else, are on both. Steps from place to place are no trend: a few layers allow few shares."
)
_PLACES = ("in the first layer", "behind others")


@dataclass(frozen=True)
class _Stack:
    """A row of losses, and how many layers of the stack are of the rarer kind.

    Attributes:
        chart: memory and other settings, as (memory, machine without units): stacks of one chart differ in units alone.
        places: of ``_PLACES``, on whose line it is.
    """

    row: LossRow
    chart: tuple[str, str]
    count: int
    layers: int
    places: tuple[str, ...]

    @property
    def share(self) -> float:
        return 100 * self.count / self.layers


def section(contents: Contents) -> Section:
    """A chart for each task and setting with stacks of at least three shares; none where no layers are mixed."""
    kinds = {identity: _kinds(record["config"]["model"]) for identity, record in contents.measured.records.items()}
    names = Counter(name for layers in kinds.values() for name in layers)
    mixed = len(names) == 2 and any(len({*layers}) == 2 for layers in kinds.values())
    charts = [*_charts(contents, kinds, min(names, key=lambda name: (names[name], name)))] if mixed else []
    return Section("Layers of two kinds", WORDS, charts=charts)


def _kinds(model: Mapping[str, Any]) -> list[str]:
    """The names of a stack's units, layer by layer; none of another model."""
    units = model.get("units") or [model["unit"]] if "unit" in model else []
    names = [unit.get("factory") or unit["name"] for unit in units]
    return [names[layer % len(names)] for layer in range(model.get("layers", len(names)))] if names else []


def _charts(contents: Contents, kinds: Mapping[str, Sequence[str]], rarer: str) -> Iterator[Chart]:
    stacks = [
        _Stack(row, _chart(contents, row), [*layers].count(rarer), len(layers), _places(layers, rarer))
        for row in largest(contents.trained)
        if (layers := kinds[row.identities[0]])
    ]
    keys = [*dict.fromkeys(stack.chart for stack in stacks)]
    memories = Counter(memory for memory, _ in keys)
    for key in keys:
        all_own = [stack for stack in stacks if stack.chart == key]
        own = sorted((stack for stack in all_own if is_ranked(stack.row)), key=lambda stack: stack.share)
        shares = [stack.share for stack in own]
        if len({*shares}) < 3:
            continue
        is_share = RANKING.is_share(own[0].row)
        label = f"{(own[0].row.metric or 'accuracy').replace('_', ' ')} (%)" if is_share else "test loss"
        lines = {
            f"{rarer} {place}": [_point(stack, is_share) for stack in own if place in stack.places] for place in _PLACES
        }
        yield chart(
            BETWEEN.join(key) if memories[key[0]] > 1 else key[0],
            f"layers of {rarer} (%)",
            label,
            "" if is_share else "y",
            {name: points for name, points in lines.items() if len(points) > 1},
            limits={"y": [0.0, 105.0]} if is_share else {},
            note=_lost(contents, all_own),
        )


def _chart(contents: Contents, row: LossRow) -> tuple[str, str]:
    units = [name for name in row.condition if name.startswith("model.unit")]
    return contents.labels.names(masked(row.condition, units))


def _lost(contents: Contents, stacks: Sequence[_Stack]) -> str:
    rows = [stack.row for stack in stacks if stack.row.diverged]
    said = [f"{contents.labels.machine(row.condition)}: {row.diverged} of {row.seeds}" for row in rows]
    return f"Seeds that diverged, and have no part in a point: {'; '.join(said)}." if said else ""


def _places(layers: Sequence[str], rarer: str) -> tuple[str, ...]:
    """Both where nothing stands beside the kind, or where it is away."""
    return _PLACES if len({*layers}) == 1 else _PLACES[:1] if layers[0] == rarer else _PLACES[1:]


def _point(stack: _Stack, is_share: bool) -> list[Any]:
    spread, scale = RANKING.spread(stack.row), 100 if is_share else 1
    ends = [scale * value for value in (spread.middle, spread.low, spread.high)]
    words = f"{stack.count} of {stack.layers} layers, {figure(ends[0])}"
    return [stack.share, *ends, stack.row.identities[0], words]
