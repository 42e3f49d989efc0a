"""Where the numbers come from: code, versions, machines, dates, and every trial by its identity."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memsweep.outcome import Outcome
from memsweep.report.naming.labels import show
from memsweep.report.read.study import Study
from memsweep.report.rows.verdicts import varying_fields

_ROUNDED = "to 1e-6 relative, except for replicas whose training amplifies roundings"


def facts(study: Study) -> list[tuple[str, str]]:
    """Name and value of what all trials share; values that differ between trials are all listed."""
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
    """Which equality holds between these results and those of the same trials computed anew, or elsewhere.

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
    """How many results come from each class; "" for those that do not say."""
    found = [(_class(record), str(record.get("provenance", {}).get("kernel_build") or "")) for record in records]
    builds: dict[str, set[str]] = defaultdict(set)
    for name, build in found:
        builds[name] |= {build} - {""}
    # a trial that no kernel computed is of the class that those beside it are of
    return Counter(f"{name}, kernels {build}" if build and len(builds[name]) > 1 else name for name, build in found)


def _class(record: Mapping[str, Any]) -> str:
    """What decides a result's last bits beside its config, our code and its kernels; empty where it does not say."""
    source = record.get("provenance", {})
    processor, versions = source.get("processor"), source.get("versions") or {}
    if not isinstance(processor, Mapping):
        return ""
    names = [str(processor.get("model")), f"torch's {processor.get('torch')}", str(processor.get("instructions"))]
    names += [f"{name} {versions[name]}" for name in ("torch", "numpy", "scipy") if name in versions]
    return ", ".join(names)


def trials(study: Study) -> list[dict[str, Any]]:
    """One row per stored trial: identity, outcome, and what tells it from the others."""
    settings = _settings(study)
    return [
        {"identity": identity, "outcome": str(record["outcome"]), "settings": settings[identity]}
        for identity, record in study.records.items()
    ]


def unusual(study: Study) -> list[dict[str, Any]]:
    """The stored trials that did not simply finish, and how many of their replicas did not."""
    replicas = study.tables["replicas"]
    ended: dict[str, Counter[str]] = defaultdict(Counter)
    if not replicas.empty:
        for identity, outcome in zip(replicas["identity"], replicas["outcome"], strict=True):
            ended[str(identity)][str(outcome)] += 1
    rows = []
    for row in trials(study):
        seeds = ended[row["identity"]]
        others = {name: count for name, count in seeds.most_common() if name != Outcome.DONE}
        if row["outcome"] != Outcome.DONE or others:
            seeds_text = ", ".join(f"{count} of {seeds.total()} seeds {name}" for name, count in others.items())
            rows.append({**row, "seeds": seeds_text, "explanation": explanation(row["outcome"])})
    return rows


def missing(study: Study) -> list[dict[str, Any]]:
    """The planned rows without a result, with what tells them from the other rows."""
    settings = _settings(study)
    return [{"row": row, "settings": settings[row.identity]} for row in study.missing]


def explanation(outcome: str) -> str:
    """What an outcome means; empty for one that this version does not know."""
    return Outcome(outcome).explanation if outcome in {str(member) for member in Outcome} else ""


def _settings(study: Study) -> dict[str, str]:
    """identity -> the fields in which the planned trials differ: ``task.horizon 400, model.width 8``."""
    from memsweep.config.schema.canonical import flatten

    configs = {identity: flatten(record["config"]) for identity, record in study.records.items()}
    configs |= {row.identity: flatten(row.config) for row in study.missing}
    varied = varying_fields(list(configs.values()))
    return {
        identity: ", ".join(f"{name} {show(value)}" for name, value in fields.items())
        for identity, fields in zip(configs, varied, strict=True)
    }


def _distinct(sources: Sequence[Mapping[str, Any]], name: str) -> str:
    return ", ".join(dict.fromkeys(str(source[name]) for source in sources if source.get(name)))


def _versions(sources: Sequence[Mapping[str, Any]]) -> str:
    found: dict[str, dict[str, None]] = {}
    for source in sources:
        for package, version in (source.get("versions") or {}).items():
            found.setdefault(str(package), {})[str(version)] = None
    return ", ".join(f"{package} {' / '.join(versions)}" for package, versions in sorted(found.items()))


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
