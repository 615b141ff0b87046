"""Samples from the database of a laboratory, read-only: journal, leases, runs, optical power and loss."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from testbed.errors import ResultsError
from testbed.leases.listing import read_leases
from testbed.measure.model import Timing
from testbed.measure.results.parquet import read_rows as read_parquet
from testbed.observe.exposition import Sample
from testbed.storage.address import Address, get_database_address
from testbed.storage.reading import explain_unreadable, is_database_error, read_rows

Row = Mapping[str, Any]
MAX_SAMPLED_STEPS = 200
QUANTILES = (0.5, 0.95)


def load_samples(runs_dir: str | Path) -> tuple[Sample, ...]:
    """Return the samples of a directory of runs. Raises `ResultsError` if the database cannot be read."""
    address = get_database_address(runs_dir)

    def run_query(query: str, *values: object) -> Sequence[Row]:
        return read_rows(address, query, values)

    try:
        return tuple(_yield_samples(Path(runs_dir), address, run_query))
    except Exception as error:
        if not is_database_error(error):
            raise
        raise ResultsError(f"metrics cannot be read: {explain_unreadable(address, error)}") from error


RunQuery = Callable[..., Sequence[Row]]


def _yield_samples(runs_dir: Path, address: Address, run_query: RunQuery) -> Iterator[Sample]:
    labs = sorted(
        {
            row["lab"]
            for table in ("runs", "operations", "intents", "leases", "losses")
            for row in run_query(
                f"select distinct lab from {table}"  # noqa: S608  names of ours
            )
        }
    )
    yield from _sample_operation_counts(run_query)
    for lab in labs:
        yield from _sample_steps(lab, run_query)
        yield from _sample_epoch(lab, run_query)
        yield from _sample_leases(lab, address, run_query)
        yield from _sample_newest_run(lab, runs_dir, run_query)
        yield from _sample_optical_loss(lab, run_query)


def _sample_operation_counts(run_query: RunQuery) -> Iterator[Sample]:
    for row in run_query(
        "select lab, kind, state, count(*) as number from operations group by lab, kind, state"
    ):
        yield Sample(
            "testbed_operations_total", (row["lab"], row["kind"] or "apply", row["state"]), row["number"]
        )
    steps_query = (
        "select o.lab, s.switch, s.change, s.state, count(*) as number from steps s "
        "join operations o on o.id = s.operation group by o.lab, s.switch, s.change, s.state"
    )
    for row in run_query(steps_query):
        labels = (row["lab"], row["switch"], row["change"] or "circuits", row["state"] or "observed")
        yield Sample("testbed_steps_total", labels, row["number"])
    for row in run_query("select lab, status, count(*) as number from runs group by lab, status"):
        yield Sample("testbed_runs_total", (row["lab"], row["status"]), row["number"])


def _sample_steps(lab: str, run_query: RunQuery) -> Iterator[Sample]:
    query = (
        "select s.change, s.intent_at, s.outcome_at from steps s join operations o on o.id = s.operation "
        "where o.lab = ? and s.outcome_at is not null and s.intent_at <> '' order by s.intent_at desc limit ?"
    )
    durations_by_change_s: dict[str, list[float]] = {}
    for row in run_query(query, lab, MAX_SAMPLED_STEPS):
        duration = datetime.fromisoformat(row["outcome_at"]) - datetime.fromisoformat(row["intent_at"])
        durations_by_change_s.setdefault(row["change"] or "circuits", []).append(duration.total_seconds())
    for change, sorted_durations_s in durations_by_change_s.items():
        sorted_durations_s.sort()
        for quantile in QUANTILES:
            index = min(len(sorted_durations_s) - 1, int(quantile * len(sorted_durations_s)))
            yield Sample("testbed_step_seconds", (lab, change, str(quantile)), sorted_durations_s[index])


def _sample_epoch(lab: str, run_query: RunQuery) -> Iterator[Sample]:
    for row in run_query("select epoch, state from intents where lab = ? order by epoch desc limit 1", lab):
        yield Sample("testbed_epoch", (lab,), row["epoch"])
        yield Sample("testbed_epoch_verified", (lab,), float(row["state"] == "verified"))


def _sample_leases(lab: str, address: Address, run_query: RunQuery) -> Iterator[Sample]:
    now_s = time.time()
    states = [lease.state for lease in read_leases(address, lab) if lease.expires_s > now_s or lease.is_held]
    for state in ("requested", "queued", "granted", "draining"):
        yield Sample("testbed_leases", (lab, state), states.count(state))
    maintenance_rows = run_query("select count(*) as number from maintenance where lab = ?", lab)
    faulty_rows = run_query("select count(*) as number from part_checks where lab = ? and fault <> ''", lab)
    yield Sample("testbed_maintenance", (lab,), _get_count(maintenance_rows))
    yield Sample("testbed_faulty_parts", (lab,), _get_count(faulty_rows))


def _get_count(rows: Sequence[Row]) -> float:
    return float(rows[0]["number"]) if rows else 0.0


def _sample_newest_run(lab: str, runs_dir: Path, run_query: RunQuery) -> Iterator[Sample]:
    """Yield the start of the newest run, and the bandwidth of the newest completed run that has timings."""
    for row in run_query("select started from runs where lab = ? order by id desc limit 1", lab):
        yield Sample(
            "testbed_last_run_timestamp_seconds", (lab,), datetime.fromisoformat(row["started"]).timestamp()
        )
    for row in run_query(
        "select id from runs where lab = ? and status = 'done' order by id desc limit 20", lab
    ):
        timings = read_parquet(runs_dir / row["id"] / "timings.parquet", Timing)
        if timings:
            yield from _sample_bandwidth(lab, timings)
            return


def _sample_bandwidth(lab: str, timings: Iterable[Timing]) -> Iterator[Sample]:
    timing_by_labels = {
        (
            lab,
            str(timing.simulated).lower(),
            timing.collective,
            f"{timing.topology}: {timing.configuration}",
            str(timing.ranks),
            str(timing.size_bytes),
        ): timing
        for timing in timings
    }
    for labels, timing in timing_by_labels.items():
        yield Sample("testbed_bus_bandwidth_mbps", labels, timing.busbw_mbps)
        yield Sample("testbed_link_limit_mbps", labels, timing.limit_mbps)


def _sample_optical_loss(lab: str, run_query: RunQuery) -> Iterator[Sample]:
    """Yield the samples of the newest reading only, so that fibre sections that no longer exist disappear."""
    query = "select * from losses where lab = ? and taken_s = (select max(taken_s) from losses where lab = ?)"
    rows = run_query(query, lab, lab)
    for row in rows:
        labels = (lab, row["place"])
        yield Sample("testbed_optical_power_dbm", labels, row["power_dbm"])
        yield Sample("testbed_optical_loss_db", labels, row["loss_db"])
        yield Sample("testbed_optical_excess_loss_db", labels, row["loss_db"] - row["intent_db"])
    if rows:
        yield Sample("testbed_optical_reading_timestamp_seconds", (lab,), rows[0]["taken_s"])
