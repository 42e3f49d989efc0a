"""The keys of the documents that ``--json`` prints: a type for each verb, and what each key holds.

A ``float`` may be null (it does not exist) or the text ``inf`` or ``-inf``. Keys are only added. The types are imported
when a schema is asked for, because every command asks which verbs have a document.
"""

from __future__ import annotations

from importlib import import_module

DOCUMENTS = {
    "plan": "plans:PlanDocument",
    **dict.fromkeys(("sweep", "resume", "extend", "retry", "measure"), "runs:RunDocument"),
    "decide": "runs:DecideDocument",
    "atlas": "runs:AtlasDocument",
    "status": "plans:StatusDocument",
    "sync": "runs:SyncDocument",
    "report": "runs:ReportDocument",
    "weights": "files:WeightsDocument",
    "upgrade": "files:UpgradeDocument",
    "submit": "files:SubmitDocument",
    "audit": "audits:AuditDocument",
    "init": "files:InitDocument",
    "data": "files:DataDocument",
    "list": "parts:ListDocument",
    "describe": "parts:DescribeDocument",
}
"""Verb -> the module here and the type of its document."""


def type_of(verb: str) -> type:
    """The type of a verb's document."""
    module, _, name = DOCUMENTS[verb].partition(":")
    found: type = getattr(import_module(f"{__name__}.{module}"), name)
    return found
