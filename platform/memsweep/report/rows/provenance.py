"""Provenance of the numbers: code, versions, machines, dates, and every trial by its identity."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memsweep.outcome import Outcome
from memsweep.report.naming.numbers import show
from memsweep.report.read.settings import fields_of
from memsweep.report.read.study import DAMAGED, MissingRow, Study
from memsweep.report.rows.table import SHOWN, Cell, Column, Table

_ROUNDED = "to 1e-6 relative, except for replicas whose training amplifies roundings"


def facts(study: Study) -> list[tuple[str, str]]:
    """Name and value of the facts about all trials; values that differ between trials are all listed."""
    sources = [record.get("provenance", {}) for record in study.records.values()]
    finished = sorted(str(source["finished"]) for source in sources if source.get("finished"))
    rows = [("study", study.name), ("protocol", study.protocol)]
    for name, word in (("code_revision", "code revision"), ("code_fingerprint", "code fingerprint")):
        rows.append((word, _distinct(sources, name)))
    rows += [("host", _distinct(sources, "host")), ("device", _distinct(sources, "device"))]
    rows += [("versions", _versions(sources)), ("equality", equality(study.records))]
    if finished:
        rows.append(("finished", finished[0] if len(finished) == 1 else f"{finished[0]} to {finished[-1]}"))
        seconds = _seconds(study.records)
        rows.append(("computing time", f"{seconds:.0f} s over {len(study.records)} trials"))
    rows += [(str(name).replace("_", " "), _text(value)) for name, value in study.plan_provenance.items()]
    seen: dict[str, str] = {}
    for name, value in rows:
        if value:
            seen.setdefault(name, value)
    return list(seen.items())


def equality(records: Mapping[str, Mapping[str, Any]]) -> str:
    """How equal these results are to those of the same trials when they are recomputed, here or elsewhere.

    One class of processor and one set of versions give equal bits. Other classes round otherwise, to 1e-6 at most,
    except where training is chaotic: there a replica's first rounding grows until it is another fit.
    """
    classes = _classes(records.values())
    count = classes.total()
    if not classes:
        return ""
    if "" in classes:
        silent = "none says" if len(classes) == 1 else f"{classes['']} of {count} do not say"
        return f"{_ROUNDED}; {silent} which class of processor computed it (an older version wrote them)"
    if len(classes) == 1:
        return f"bit for bit: all {count} results come from one class of processor and versions ({next(iter(classes))})"
    listed = "; ".join(f"{name}: {number}" for name, number in classes.most_common())
    return f"{_ROUNDED}; the results come from {len(classes)} classes of processor and versions ({listed})"


def _classes(records: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How many results come from each class; "" for results without one."""
    named = [(_class(record), str(record.get("provenance", {}).get("kernel_build") or "")) for record in records]
    builds: dict[str, set[str]] = defaultdict(set)
    for name, build in named:
        builds[name] |= {build} - {""}
    # a trial that no kernel computed is of the class of the trials beside it
    return Counter(f"{name}, kernels {build}" if build and len(builds[name]) > 1 else name for name, build in named)


def _class(record: Mapping[str, Any]) -> str:
    """The processor and versions that decide a result's last bits; empty where the record does not say."""
    source = record.get("provenance", {})
    processor, versions = source.get("processor"), source.get("versions") or {}
    if not isinstance(processor, Mapping):
        return ""
    names = [str(processor.get("model")), f"torch's {processor.get('torch')}", str(processor.get("instructions"))]
    names += [f"{name} {versions[name]}" for name in ("torch", "numpy", "scipy") if name in versions]
    return ", ".join(names)


def trial_table(study: Study) -> Table[Mapping[str, Any]]:
    """Every stored trial: identity, outcome, and the fields in which it differs from the others."""
    settings = _settings(study)
    columns: list[Column[Mapping[str, Any]]] = [
        Column("identity", lambda record: record["identity"], views=SHOWN, style="id"),
        Column("outcome", lambda record: str(record["outcome"]), _words, views=SHOWN),
        Column("settings", lambda record: settings[record["identity"]], views=SHOWN, style="small"),
    ]
    records = [{**record, "identity": identity} for identity, record in study.records.items()]
    return Table("trials", "Trials by identity", records, columns, anchor=lambda record: f"trial-{record['identity']}")


def unusual_table(study: Study) -> Table[Mapping[str, Any]]:
    """The stored trials, and those of their seeds, that diverged or stopped early."""
    replicas, settings = study.tables["replicas"], _settings(study)
    ended: dict[str, Counter[str]] = defaultdict(Counter)
    if not replicas.empty:
        for identity, outcome in zip(replicas["identity"], replicas["outcome"], strict=True):
            ended[str(identity)][str(outcome)] += 1

    def seeds(identity: str) -> str:
        counts = ended[identity]
        others = [(name, count) for name, count in counts.most_common() if name != Outcome.DONE]
        return ", ".join(f"{count} of {counts.total()} seeds {_words(name)}" for name, count in others)

    columns: list[Column[Mapping[str, Any]]] = [
        Column("trial", lambda row: row["identity"], cell=_linked, views=SHOWN, style="id"),
        Column("outcome", lambda row: row["outcome"], _words, views=SHOWN),
        Column("seeds", lambda row: seeds(row["identity"]), views=SHOWN, style=""),
        Column("settings", lambda row: settings[row["identity"]], views=SHOWN, style=""),
        Column("meaning and next step", lambda row: explanation(row["outcome"]), views=SHOWN, style="reasons"),
    ]
    stored = [{"identity": identity, "outcome": str(r["outcome"])} for identity, r in study.records.items()]
    rows = [row for row in stored if row["outcome"] != Outcome.DONE or seeds(row["identity"])]
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


def _linked(row: Mapping[str, Any]) -> Cell:
    return Cell(row["identity"], link=f"trial-{row['identity']}")


def _words(name: str) -> str:
    return name.replace("_", " ")


def explanation(outcome: str) -> str:
    """What an outcome means; empty for one that this version does not know."""
    return Outcome(outcome).explanation if outcome in {str(member) for member in Outcome} else ""


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


def _distinct(sources: Sequence[Mapping[str, Any]], name: str) -> str:
    return ", ".join(dict.fromkeys(str(source[name]) for source in sources if source.get(name)))


def _versions(sources: Sequence[Mapping[str, Any]]) -> str:
    by_package: dict[str, dict[str, None]] = {}
    for source in sources:
        for package, version in (source.get("versions") or {}).items():
            by_package.setdefault(str(package), {})[str(version)] = None
    return ", ".join(f"{package} {' / '.join(versions)}" for package, versions in sorted(by_package.items()))


def _seconds(records: Mapping[str, Mapping[str, Any]]) -> float:
    """Total time of the packs: the members of one pack carry the same time, which counts once."""
    packs: dict[str, float] = {}
    for identity, record in records.items():
        source = record.get("provenance", {})
        pack = source.get("pack") or identity
        # records of earlier versions list the members
        packs[pack if isinstance(pack, str) else "\n".join(pack)] = float(source.get("seconds") or 0.0)
    return sum(packs.values())


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value if value is not None else "")
