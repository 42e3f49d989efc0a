"""The document of ``memsweep plan``: the trials or the search, the work that is left, and what it will take."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from memsweep.config.schema.search import NONE
from memsweep.documents.keys.plans import ExpectedItem, NodesItem, PackItem, PlanDocument, PlannedTrialItem, SearchItem
from memsweep.report.naming.objective import objectives
from memsweep.sweep.estimate.nodes import problem_of, uses

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig
    from memsweep.studies.preview import Preview
    from memsweep.sweep.estimate.estimate import Estimate
    from memsweep.sweep.estimate.nodes import NodeOffer
    from memsweep.sweep.planning.plan import Plan


def plan_document(preview: Preview) -> PlanDocument:
    """The document, without what the work is expected to take."""
    study, plan = preview.study, preview.plan
    packs = [] if plan is None else _packs(plan)
    suggestions = 0 if study.search is None else len(study.rows) * study.search.settings.trials
    return {
        "study": study.name,
        "protocol": study.protocol,
        "cells": len(study.rows) if plan is None else None,
        "trials": [] if plan is None else _trials(preview, plan),
        "done": 0 if plan is None else len(plan.done),
        "left": preview.to_run,
        "seeds": suggestions * study.rows[0].training.seeds + sum(pack["seeds"] for pack in packs),
        "packs": packs,
        "not_reused": dict(Counter(str(reason.why) for reason in preview.reasons.values()).most_common()),
        "search": _search(study, preview.stored),
        "trained_on": list(objectives(preview.configs)),
        "notes": preview.notes,
        "resources": {
            "cpus": study.resources.cpus,
            "gpus": study.resources.card,
            "workers": study.resources.workers,
            "kinds": [
                {
                    "trials": count,
                    "cpus": kind.cpus,
                    "gpus": kind.card,
                    "device": "cuda" if kind.card else "cpu",
                    "accelerator": kind.accelerator or None,
                    "node_memory_bytes": None if kind.node_memory is None else kind.node_memory * 2**30,
                    "labels": list(kind.labels),
                }
                for kind, count in study.kinds.items()
            ],
        },
        "inline": None if preview.placement is None else preview.placement.inline,
        "expected": None,
    }


def _trials(preview: Preview, plan: Plan) -> list[PlannedTrialItem]:
    reuse = preview.reuse
    pack_of = {trial.identity: number for number, pack in enumerate(plan.packs, 1) for trial in pack.trials}
    measured = {trial.identity for pack in plan.packs for trial in pack.trials if trial.trained[0]}
    trials: list[PlannedTrialItem] = []
    for row in preview.rows:
        identity = str(row["identity"])
        place, reason = reuse.elsewhere.get(identity), preview.reasons.get(identity)
        trials.append(
            {
                "identity": identity,
                "fields": {path: value for path, value in row.items() if path not in ("identity", "state")},
                "state": "done" if identity in reuse.here else "to_run" if place is None else "reused",
                "reused_from": None if place is None else place.name,
                "pack": pack_of.get(identity),
                "why": None if reason is None else str(reason.why),
                "why_exactly": None if reason is None else reason.text or None,
                "only_measured": identity in measured,
            }
        )
    return trials


def _packs(plan: Plan) -> list[PackItem]:
    whole = sum(pack.cost for pack in plan.packs) or 1.0
    return [
        {
            "trials": len(pack.trials),
            "seeds": sum(trial.config.training.seeds for trial in pack.trials),
            "share": pack.cost / whole,
        }
        for pack in plan.packs
    ]


def _search(study: SweepConfig, stored: int) -> SearchItem | None:
    search, confirm = study.search, study.confirm
    if search is None:
        return None
    settings = search.settings
    return {
        "algorithm": settings.algorithm,
        "suggestions": settings.trials,
        "batch": settings.batch,
        "scheduler": settings.scheduler.name,
        "objective": list(settings.objective),
        "searched": list(search.space),
        "seeds": study.rows[0].training.seeds,
        "confirmations": len(study.rows) * confirm.top if confirm is not None else 0,
        "confirmation_seeds": confirm.seeds if confirm is not None else 0,
        "stored": stored,
    }


def expected_item(
    study: SweepConfig, made: Estimate, stored: tuple[float, float], offer: NodeOffer | None, *, probed: bool
) -> ExpectedItem:
    """The time, memory and disk that the work is expected to take.

    Args:
        study: the study.
        made: the estimate.
        stored: bytes of a trial of this study's stored results, and of its weights among them; 0 where there is none.
        offer: the type of nodes that was asked for.
        probed: a measurement was asked for.
    """
    disk, weights = stored if stored[0] else (made.disk, made.weights)
    return {
        "seconds": made.seconds,
        "starting_seconds": made.starting_on_ray,
        "work_seconds": made.work,
        "soonest_seconds": made.soonest,
        "slots": made.slots,
        "idle_cpus": made.idle,
        "factor": made.factor,
        "programs": made.kinds[0],
        "measured_programs": made.whole,
        "trained_programs": made.kinds[1],
        "kept_programs": made.kept,
        "measured_share": made.measured,
        "memory_bytes": made.memory or None,
        "trial_bytes": disk or None,
        "weights_bytes": weights if disk else None,
        "disk_bytes": disk * made.rows if disk else None,
        "disk_as_stored": stored[0] > 0,
        "bound": study.search is not None and study.search.settings.scheduler.name != NONE,
        "probed": probed,
        "not_measured": list(made.why_not),
        "nodes": None if offer is None or problem_of(made.lengths, offer) else _uses(made, offer),
    }


def _uses(made: Estimate, offer: NodeOffer) -> list[NodesItem]:
    return [
        {"nodes": use.nodes, "seconds": use.seconds, "cost": use.cost if offer.price else None, "idle_share": use.idle}
        for use in uses(made.lengths, offer, made.starting)
    ]
