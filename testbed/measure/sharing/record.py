"""Measurements of jobs that share a lab on record, and periods and bursts of jobs taken from runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from testbed.design.sharing.jobs import Burst
from testbed.errors import WorkloadError
from testbed.measure.plan_job_record import PHASE as PLAN_JOB
from testbed.measure.results.records import Json
from testbed.measure.sharing.measurement import MeasuredJob

if TYPE_CHECKING:
    from testbed.measure.results.store import RunStore

PHASE = "shared jobs"


def to_json(rows: Sequence[MeasuredJob], rate_gbps: float) -> dict[str, Json]:
    """Return the data of a phase named `PHASE`."""
    return {"rate_gbps": rate_gbps, "measured": [_row(row) for row in rows]}


def _row(row: MeasuredJob) -> dict[str, Json]:
    return cast("dict[str, Json]", asdict(row) | {"iterations_ms": list(row.iterations_ms)})


def phases_of_run(store: RunStore, run_id: str, job: str) -> tuple[float, tuple[Burst, ...]]:
    """Return period and bursts of a job that a run measured: computing, then one burst at the rate of the link.

    Of a job among others the quickest iteration counts, which is nearest to one alone. A run of `testbed job` has one
    job, whose fullest link says what is sent. Raises `WorkloadError` where nothing of it was measured.
    """
    record = store.load(run_id)
    found = [phase for phase in record.phases if phase.name in (PHASE, PLAN_JOB)]
    for phase in reversed(found):
        data = cast("Mapping[str, Any]", phase.data)
        period_ms, send_ms, gbps = _of_plan_job(data) if phase.name == PLAN_JOB else _of_shared(data, job)
        if period_ms:
            return period_ms, (Burst(period_ms - send_ms, send_ms, gbps),) if send_ms else ()
    raise WorkloadError(
        f"run {run_id} measured no job {job!r}: name a run of `testbed schedule --run` or `testbed job`"
    )


def _of_shared(data: Mapping[str, Any], job: str) -> tuple[float, float, float]:
    rows = [row for row in data["measured"] if row["job"] == job]
    if not rows:
        return 0.0, 0.0, 0.0
    row = min(rows, key=lambda one: min(one["iterations_ms"]))
    period_ms = min(row["iterations_ms"])
    return period_ms, max(period_ms - row["computed_ms"], 0.0), data["rate_gbps"]


def _of_plan_job(data: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the median iteration, and how long the bytes of the fullest link take in it."""
    times = sorted(data["times_s"])
    period_s, rate_gbps = times[len(times) // 2], data.get("rate_gbps", 0.0)
    planned = max((link["planned_bytes"] for link in data["links"]), default=0) / max(1, len(times))
    if not planned or not rate_gbps:
        return 0.0, 0.0, 0.0
    send_s = min(planned * 8 / data["rate_mbps"] / 1e6, period_s)
    return period_s * 1e3, send_s * 1e3, rate_gbps
