"""Provenance of the numbers: code, versions, machines, dates; and the trials that ended unusually or are missing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from memsweep.outcome import Outcome
from memsweep.report.naming.numbers import show
from memsweep.report.read.settings import fields_of
from memsweep.report.read.study import DAMAGED, MissingRow, Study
from memsweep.report.values.table import SHOWN, Cell, Column, Table

_ROUNDED = "to 1e-6 relative, except for replicas whose training amplifies roundings"


def facts(study: Study) -> dict[str, str]:
    """Name -> value of the facts about all trials; values that differ between trials are all listed."""
    sources = [record["provenance"] for record in study.records.values()]
    found = {"study": study.name, "protocol": study.protocol}
    for name in ("code_revision", "code_fingerprint", "host", "device"):
        found[name.replace("_", " ")] = _joined(source.get(name) for source in sources)
    found["versions"] = _joined(f"{name} {one}" for s in sources for name, one in (s.get("versions") or {}).items())
    found["equality"] = equality(study.records)
    finished = sorted(str(source["finished"]) for source in sources if source.get("finished"))
    found["finished"] = " to ".join(dict.fromkeys([*finished[:1], *finished[-1:]]))
    packs = {
        source.get("pack"): float(source.get("seconds") or 0.0) for source in sources
    }  # all members carry its time
    found["computing time"] = f"{sum(packs.values()):.0f} s over {len(sources)} trials" if finished else ""
    return {name: value for name, value in found.items() if value}


def _joined(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value))


def equality(records: Mapping[str, Mapping[str, Any]]) -> str:
    """How equal these results are to those of the same trials when they are recomputed, here or elsewhere.

    One class of processor and one set of versions give equal bits. Other classes round otherwise, to 1e-6 at most,
    except where training is chaotic: there a replica's first rounding grows until it is another fit.
    """
    classes = _classes(record["provenance"] for record in records.values())
    if not classes:
        return ""
    if len(classes) == 1:
        (name,) = classes
        return f"bit for bit: all {len(records)} results come from one class of processor and versions ({name})"
    listed = "; ".join(f"{name}: {number}" for name, number in classes.most_common())
    return f"{_ROUNDED}; the results come from {len(classes)} classes of processor and versions ({listed})"


def _classes(sources: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How many results come from each class of processor, versions and kernels."""
    named = [(_class(source), str(source.get("kernel_build") or "")) for source in sources]
    builds: dict[str, set[str]] = defaultdict(set)
    for name, build in named:
        builds[name] |= {build} - {""}
    # a trial that no kernel computed is of the class of the trials beside it
    return Counter(f"{name}, kernels {build}" if build and len(builds[name]) > 1 else name for name, build in named)


def _class(source: Mapping[str, Any]) -> str:
    """The processor and versions that decide a result's last bits."""
    processor, versions = source["processor"], source["versions"]
    names = [str(processor.get("model")), f"torch's {processor.get('torch')}", str(processor.get("instructions"))]
    return ", ".join(
        [*names, *(f"{name} {versions[name]}" for name in ("torch", "numpy", "scipy") if name in versions)]
    )


def unusual_table(study: Study) -> Table[tuple[str, str]]:
    """The stored trials with seeds that diverged or stopped early, and how many of them did."""
    replicas, settings = study.tables["replicas"], _settings(study)
    rows = []
    for identity, outcomes in replicas.groupby("identity", sort=False)["outcome"]:
        others = outcomes[outcomes != Outcome.DONE].value_counts()
        seeds = ", ".join(f"{count} of {len(outcomes)} seeds {_words(name)}" for name, count in others.items())
        rows += [(str(identity), seeds)] if seeds else []
    columns: list[Column[tuple[str, str]]] = [
        Column("trial", lambda row: row[0], views=SHOWN, style="id"),
        Column("seeds", lambda row: row[1], views=SHOWN, style=""),
        Column("settings", lambda row: settings[row[0]], views=SHOWN, style=""),
    ]
    return Table("unusual", "Trials that ended unusually", rows, columns)


def missing_table(study: Study) -> Table[MissingRow]:
    """The planned trials without a result, and the fields in which they differ from the other trials."""
    settings = _settings(study)
    columns: list[Column[MissingRow]] = [
        Column("trial", lambda row: row.identity, views=SHOWN, style="id"),
        Column("outcome", lambda row: row.outcome, cell=lambda row: Cell(_words(row.outcome), "bad"), views=SHOWN),
        Column("settings", lambda row: settings[row.identity] or "the only such trial", views=SHOWN, style=""),
        Column("meaning and next step", lambda row: row.reason, cell=_reason, views=SHOWN, style="reasons"),
    ]
    return Table("missing", "Trials without a result", study.missing, columns)


def _reason(row: MissingRow) -> Cell:
    heading = "fault" if row.outcome == DAMAGED else "traceback"
    return Cell(row.reason, detail=(heading, row.traceback) if row.traceback else None)


def _words(name: object) -> str:
    return str(name).replace("_", " ")


def _settings(study: Study) -> dict[str, str]:
    """identity -> the fields in which the planned trials differ: ``task.horizon 400, model.width 8``."""
    configs = {identity: fields_of(record["config"]) for identity, record in study.records.items()}
    configs |= {row.identity: fields_of(row.config) for row in study.missing}
    names = dict.fromkeys(name for config in configs.values() for name in config)
    varied = [name for name in names if len({str(config.get(name)) for config in configs.values()}) > 1]
    return {
        identity: ", ".join(f"{name} {show(config[name])}" for name in varied if name in config)
        for identity, config in configs.items()
    }
