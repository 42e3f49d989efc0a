"""The origin of a stored audit: the code of the audit and of our own layer, and versions that its numbers depend on."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable
from functools import cache

from benchmarks.layers.known import HORIZON, WIDTH, Layer
from memsweep.checks.part import checks
from memsweep.sweep.planning.fingerprint import EXEMPT, GRAPH
from memsweep.sweep.planning.sources.statements import Definition


def made_by(layer: Layer) -> dict[str, str]:
    """``audit``, ``layer`` (hashes), ``torch`` and ``numpy`` (versions): a row with others is audited again.

    A docstring, a comment or code that no check runs moves no hash. Of a layer of others, its version stands for its
    code; the call that makes it here, with its arguments, counts for each. The code of such a call
    (``known._of``) counts for none.
    """
    own = _digest((part.__module__, part.__qualname__) for part in layer.parts())
    made = hashlib.sha256(f"{own} {layer.settings} {WIDTH} {HORIZON}".encode()).hexdigest()[:16]
    versions = {name: importlib.metadata.version(name).split("+")[0] for name in ("torch", "numpy")}
    return {"audit": audit_code(), "layer": made, **versions}


@cache
def audit_code() -> str:
    """A hash of the code of all checks, and of what runs them."""
    looks = ((check.look.__module__, check.look.__name__) for check in checks())
    return _digest([("memsweep.checks.run", "audit"), *looks])


def _digest(roots: Iterable[Definition]) -> str:
    return GRAPH.digest(GRAPH.closure(roots, _is_apart), _is_apart)


def _is_apart(definition: Definition) -> bool:
    return any(definition[0] == name or definition[0].startswith(f"{name}.") for name in EXEMPT)
