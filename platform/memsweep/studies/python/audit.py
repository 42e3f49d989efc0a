"""The audit of a module in memory, for Python."""

from __future__ import annotations

import html
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from memsweep.checks.run import Audit as Checked
from memsweep.checks.run import audit as checked
from memsweep.checks.subject import Subject
from memsweep.errors import ConfigError
from memsweep.models.base import Model, Signature
from memsweep.report.audit import About, answer, audit_page, audit_text
from memsweep.report.naming.numbers import is_number
from memsweep.studies.python.calls import verb
from memsweep.studies.python.in_memory import built, copies_of, name_of
from memsweep.studies.python.page import Page

if TYPE_CHECKING:
    import pandas as pd

_INPUTS, _HORIZON = 1, 1024
_WIDTH = 110  # letters of a printed line


class Audit:
    """The findings about a module; made by ``memsweep.audit``. Printed, it is the text of ``memsweep audit``."""

    def __init__(self, found: Checked, about: About) -> None:
        self._found, self._about = found, about

    @property
    def status(self) -> str:
        """The worst of all findings: ``fault``, ``not enough``, ``note``, ``pass`` or ``skip``."""
        return self._found.status.value

    @property
    def answer(self) -> str:
        """The audit in one sentence."""
        return answer(self._found)

    @property
    def findings(self) -> pd.DataFrame:
        """A row per check, with ``status``, ``sentence`` and the ``seconds`` that it took."""
        import pandas as pd

        rows = [(each.check, each.status.value, each.sentence) for each in self._found.findings]
        table = pd.DataFrame(rows, columns=["check", "status", "sentence"])
        return table.assign(seconds=[self._found.seconds[name] for name in table["check"]])

    @property
    def curves(self) -> pd.DataFrame:
        """A row per point of what the page draws: ``panel``, ``name`` of the line, ``x`` and ``y``."""
        import pandas as pd

        points = [
            (curve.panel, curve.name, x, y)
            for finding in self._found.findings
            for curve in finding.curves
            for x, y in zip(curve.x, curve.y, strict=True)
        ]
        return pd.DataFrame(points, columns=["panel", "name", "x", "y"])

    def __getitem__(self, check: str) -> Mapping[str, Any]:
        """The numbers that a check measured, as docs/json_keys.md names them."""
        known = {finding.check: finding.numbers for finding in self._found.findings}
        if check not in known:
            raise KeyError(f"there is no check {check!r}. Checks: {', '.join(known)}")
        return known[check]

    def page(self) -> Page:
        """The page of the audit, with its plots."""
        return Page(audit_page(self._found, self._about))

    def __repr__(self) -> str:
        return audit_text(self._found, self._about, width=_WIDTH, colour=False)

    def _repr_html_(self) -> str:
        return f'<pre style="line-height: 1.2">{html.escape(repr(self))}</pre>'


@verb
def audit(
    module: nn.Module | Callable[..., nn.Module],
    *,
    inputs: int | None = None,
    outputs: int = 1,
    width: int | None = None,
    arguments: Mapping[str, Any] | None = None,
    horizon: int | None = None,
    tokens: bool = False,
    device: str = "cpu",
    effort: int = 1,
    seconds: float = 60.0,
) -> Audit:
    """Audit a module in memory as ``memsweep audit`` does: what it computes, how long it remembers, what it costs.

    Nothing is trained, and the module is not changed: the checks look at copies of it, in eval mode.

    Args:
        module: ``[batch, time, inputs] -> [batch, time, outputs]``, or a tuple that begins with these outputs. Or its
            class, or a function that makes it: it gets the sizes where it has arguments of those names.
        inputs: size of an input, or number of ids (None: that of a registered model, else 1).
        outputs, width, arguments: of a class or function alone; arguments are further ones, by name.
        horizon: longest sequence in steps (None: that of a registered model, else 1024).
        tokens: the module reads ids ``[batch, time]``.
        device: cpu, or cuda for modules that need it.
        effort: looks at so many times as many places.
        seconds: about how long at most; a check that it cut off is ``not enough``.

    Raises:
        ConfigError: a size, the effort or the seconds are not allowed.
        ModuleError: it is no ``nn.Module``, and makes none; it cannot be copied, or gives no outputs.
    """
    wrong = [
        f"{name} is a whole number of at least 1, got {value!r}"
        for name, value in {"inputs": inputs, "outputs": outputs, "horizon": horizon, "effort": effort}.items()
        if value is not None and not _is_count(value)
    ]
    if not (is_number(seconds) and seconds > 0):
        wrong.append(f"seconds is a number above 0, got {seconds!r}")
    if isinstance(module, nn.Module):
        given = [name for name, value in {"width": width, "arguments": arguments}.items() if value is not None]
        wrong += [f"{name} belongs to a class or a function, got a module that is made" for name in given]
    if wrong:
        raise ConfigError(wrong, "the audit")
    settings: dict[str, Any] = {}
    if not isinstance(module, nn.Module) and callable(module):
        sizes = Signature(inputs or _INPUTS, outputs, horizon or _HORIZON)
        module = built(module, sizes, width, arguments)
    else:
        settings["weights"] = "its own"
    copies = copies_of(module, "audit")
    own = module.signature if isinstance(module, Model) else None
    inputs = inputs if inputs is not None else own.inputs if own is not None else _INPUTS
    horizon = horizon if horizon is not None else own.horizon if own is not None else _HORIZON
    found = checked(Subject(copies, inputs, horizon, tokens=tokens, device=device, effort=effort), seconds)
    settings |= {"horizon": horizon, "inputs": inputs, **({"tokens": True} if tokens else {})}
    settings |= {"effort": effort} if effort > 1 else {}
    return Audit(found, About(name_of(module), settings))


def _is_count(value: Any) -> bool:
    """Whether a value is a whole number of at least 1, NumPy's among them."""
    try:
        return not isinstance(value, bool) and operator.index(value) >= 1
    except TypeError:
        return False
