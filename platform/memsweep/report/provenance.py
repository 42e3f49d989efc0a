"""Where the numbers come from: code, versions, machines, dates, and every trial by its identity."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from memsweep.outcome import Outcome
from memsweep.report.labels import show
from memsweep.report.study import Study
from memsweep.report.view import varying_fields


def facts(study: Study) -> list[tuple[str, str]]:
    """Name and value of what all trials share; values that differ between trials are all listed."""
    sources = [record.get("provenance", {}) for record in study.records.values()]
    finished = sorted(str(source["finished"]) for source in sources if source.get("finished"))
    rows = [("study", study.name), ("protocol", study.protocol)]
    for name, word in (("code_revision", "code revision"), ("code_fingerprint", "code fingerprint")):
        rows.append((word, _distinct(sources, name)))
    rows += [("host", _distinct(sources, "host")), ("device", _distinct(sources, "device"))]
    rows.append(("versions", _versions(sources)))
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
    from memsweep.config.canonical import flatten

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
