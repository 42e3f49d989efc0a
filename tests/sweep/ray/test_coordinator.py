"""The coordinator of a kept group says of an assignment what holds for that assignment alone."""

from __future__ import annotations

import asyncio

from memsweep.sweep.ray.coordinator import Assignment, Coordinator, WorkerResult
from memsweep.sweep.worker.execute import PackJob

LARGE, SMALL = 5 * 2**30, 2**20


def test_the_peak_of_a_pack_is_never_that_of_the_pack_before() -> None:
    asyncio.run(two_packs())


async def two_packs() -> None:
    coordinator = Coordinator(2)
    first, second = (
        Assignment(PackJob(pack, "study", "folder", "workspace", ()), (pack,), ({},), padded=True)
        for pack in ("first", "second")
    )
    await coordinator.assign(first)
    for rank, peak in ((0, LARGE), (1, SMALL)):
        await coordinator.report_progress(rank, 0.5, peak)
        await coordinator.report_result(rank, WorkerResult())
    state = await coordinator.state(0.0)
    assert (state.fraction, state.peak_memory, len(state.results)) == (1.0, LARGE, 2)
    await coordinator.assign(second)
    state = await coordinator.state(0.0)
    assert (state.fraction, state.peak_memory, state.results) == (0.0, 0, {})
    await coordinator.report_progress(1, 0.5, SMALL)
    state = await coordinator.state(0.0)
    assert (state.fraction, state.peak_memory) == (0.25, SMALL)
