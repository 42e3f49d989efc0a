"""The metric against the share of layers of one kind: a chart for each task, a line for each place of these layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import RANKING, LossRow, is_ranked, largest
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
        places: of ``_PLACES``, on whose line it is.
    """

    row: LossRow
    memory: str
    count: int
    layers: int
    places: tuple[str, ...]

    @property
    def share(self) -> float:
        return 100 * self.count / self.layers


def section(contents: Contents) -> Section:
    """A chart for each task with stacks of at least three shares; without charts where no layers are mixed."""
    kinds = {identity: _kinds(record["config"]["model"]) for identity, record in contents.measured.records.items()}
    names = Counter(name for layers in kinds.values() for name in layers)
    mixed = len(names) == 2 and any(len({*layers}) == 2 for layers in kinds.values())
    charts = [*_charts(contents, kinds, min(names, key=lambda name: names[name]))] if mixed else []
    return Section("Layers of two kinds", WORDS, charts=charts)


def _kinds(model: Mapping[str, Any]) -> list[str]:
    """The names of a stack's units, layer by layer; none of another model."""
    units = model.get("units") or [model["unit"]] if "unit" in model else []
    names = [unit.get("factory") or unit["name"] for unit in units]
    return [names[layer % len(names)] for layer in range(model["layers"])] if names else []


def _charts(contents: Contents, kinds: Mapping[str, Sequence[str]], rarer: str) -> Iterator[Chart]:
    stacks = [
        _Stack(row, contents.labels.memory(row.condition), [*layers].count(rarer), len(layers), _places(layers, rarer))
        for row in largest(contents.trained)
        if (layers := kinds[row.identities[0]]) and is_ranked(row)
    ]
    for memory in dict.fromkeys(stack.memory for stack in stacks):
        own = sorted((stack for stack in stacks if stack.memory == memory), key=lambda stack: stack.share)
        shares = [stack.share for stack in own]
        if len({*shares}) < 3:
            continue
        is_share = RANKING.is_share(own[0].row)
        label = f"{(own[0].row.metric or 'accuracy').replace('_', ' ')} (%)" if is_share else "test loss"
        lines = {
            f"{rarer} {place}": [_point(stack, is_share) for stack in own if place in stack.places] for place in _PLACES
        }
        yield chart(
            memory,
            f"layers of {rarer} (%)",
            label,
            "" if is_share else "y",
            {name: points for name, points in lines.items() if len(points) > 1},
            limits={"y": [0.0, 105.0]} if is_share else {},
        )


def _places(layers: Sequence[str], rarer: str) -> tuple[str, ...]:
    """Both where nothing stands beside the kind, or where it is away."""
    return _PLACES if len({*layers}) == 1 else _PLACES[:1] if layers[0] == rarer else _PLACES[1:]


def _point(stack: _Stack, is_share: bool) -> list[Any]:
    spread, scale = RANKING.spread(stack.row), 100 if is_share else 1
    ends = [scale * value for value in (spread.middle, spread.low, spread.high)]
    words = f"{stack.count} of {stack.layers} layers, {figure(ends[0])}"
    return [stack.share, *ends, stack.row.identities[0], words]
