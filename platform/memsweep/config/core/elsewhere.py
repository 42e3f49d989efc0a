"""Where a field lies that was written in another section, or without one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from memsweep import registry
from memsweep.config.core.problems import phrase
from memsweep.config.core.reflect import keys, nested_config, part_config, registered_kind

_SECTIONS: dict[str, type] = {}
_FEW = 2  # parts that are named
_OTHER_WORDS = {
    "lr": "learning_rate",
    **dict.fromkeys(("epochs", "iterations", "max_steps"), "steps"),
    **dict.fromkeys(("hidden", "hidden_size", "dim", "d_model", "units"), "width"),
    **dict.fromkeys(("length", "seq_len", "sequence_length", "T"), "horizon"),
    **dict.fromkeys(("batch", "bs"), "batch_size"),
    **dict.fromkeys(("seed", "n_seeds", "num_seeds"), "seeds"),
    **dict.fromkeys(("gpu", "num_gpus", "cuda"), "gpus"),
    **dict.fromkeys(("cpu", "num_cpus", "cores"), "cpus"),
}
"""Words of other programs -> the name of the field here."""


def know_sections(sections: Mapping[str, type]) -> None:
    """Adds sections of a study, among which ``elsewhere`` looks.

    Args:
        sections: name -> dataclass; the fields of that without a name are sections themselves.
    """
    _SECTIONS.update(sections)


def elsewhere(key: str, section: str = "", before: str = "") -> str:
    """``Did you mean resources.gpus?``: a field of this very name, or of the usual other word, of any section.

    Args:
        key: that was written.
        section: in which it was written, and which has no such field as it is; empty: in none.
        before: stands before the field's path, such as ``grid.``.

    Returns:
        A sentence with a space before it; empty where no section has such a field.
    """
    here = [path for path in _fields() if path in (f"{section}.{_OTHER_WORDS.get(key, key)}", f"{section}.{key}s")]
    if here and here[0] != f"{section}.{key}":
        return f" Did you mean {before}{here[0]}?"
    for name in dict.fromkeys((_OTHER_WORDS.get(key, key), key)):
        found = {path: of for path, of in _fields().items() if path.rpartition(".")[2] == name}
        if found:
            path = max(found, key=lambda path: (path.partition(".")[0] == section, len(found[path])))
            owners = phrase(filter(None, found[path]))
            few = len(found[path]) <= _FEW and owners
            if path == f"{section}.{key}":
                return f" It is a field of {owners}."
            return f" Did you mean {before}{path}{f' (of {owners})' if few else ''}?"
    return ""


def nearest(key: str, before: str = "") -> str:
    """The same for a name that is near one, written without a section."""
    names = {path.rpartition(".")[2] for path in _fields()}
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.75)
    return elsewhere(key, before=before) or (elsewhere(near[0], before=before) if near else "")


def _fields() -> dict[str, list[str]]:
    """Dotted path of every field of a section -> the parts that have it; of a field of all the section, one empty."""
    found: dict[str, list[str]] = {}
    for name, cls in _SECTIONS.items():
        for key, field in keys(cls).items():
            kind = registered_kind(field)
            if name:
                found.setdefault(f"{name}.{key}", []).append("")
                continue
            parts = [(f"the {kind} {part}", part_config(kind, part)) for part in registry.names(kind)] if kind else []
            for of, config in parts or [("", nested_config(cls, field))]:
                for each in keys(config):
                    found.setdefault(f"{key}.{each}", []).append(of)
    return found
