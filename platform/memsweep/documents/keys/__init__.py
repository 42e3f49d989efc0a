"""The keys of the documents that ``--json`` prints: a type for each verb, and what each key holds.

A ``float`` may be null (it does not exist) or the text ``inf`` or ``-inf``. Keys are only added.
"""

from __future__ import annotations

from memsweep.documents.keys.audits import AuditDocument
from memsweep.documents.keys.files import DataDocument, InitDocument, SubmitDocument, UpgradeDocument, WeightsDocument
from memsweep.documents.keys.parts import DescribeDocument, ListDocument
from memsweep.documents.keys.plans import PlanDocument, StatusDocument
from memsweep.documents.keys.runs import ReportDocument, RunDocument, SyncDocument

DOCUMENTS: dict[str, type] = {
    "plan": PlanDocument,
    **dict.fromkeys(("sweep", "resume", "extend", "retry", "measure"), RunDocument),
    "status": StatusDocument,
    "sync": SyncDocument,
    "report": ReportDocument,
    "weights": WeightsDocument,
    "upgrade": UpgradeDocument,
    "submit": SubmitDocument,
    "audit": AuditDocument,
    "init": InitDocument,
    "data": DataDocument,
    "list": ListDocument,
    "describe": DescribeDocument,
}
"""Verb -> the type of its document."""
