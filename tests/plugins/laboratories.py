"""A laboratory with a past: runs on days of their own, readings of light, epochs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from libraries import skip_without

FIRST_DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _wait_for_no_disk(monkeypatch):
    """Let commits not wait for the disk: a past of many runs has hundreds of them, and nothing is lost here."""
    from testbed.storage import database

    durable = database._make_durable

    def make(connection, record):
        durable(connection, record)
        connection.execute("PRAGMA synchronous=OFF")

    monkeypatch.setattr(database, "_make_durable", make)


@pytest.fixture
def laboratory(tmp_path, monkeypatch):
    """Provide functions that put runs, readings and epochs of given days on record, in `runs_dir`."""
    skip_without("pyarrow")
    skip_without("sqlalchemy")
    _wait_for_no_disk(monkeypatch)
    import sqlalchemy as sa

    from testbed.measure.model import NicBytes, Timing
    from testbed.measure.results.records import LabInfo
    from testbed.measure.results.store import RunStore
    from testbed.operate.drift.history import open_history
    from testbed.operate.drift.losses import StretchLoss
    from testbed.storage.database import Database
    from testbed.storage.schema import intents, runs

    runs_dir = tmp_path / "runs"
    info = LabInfo("t4", "labs/t4.yaml", tuple("abcd"), (2,) * 4, ("ocs1 (8x8)",), 100.0, 25.0, 9000)

    def day(number):
        return FIRST_DAY + timedelta(days=number)

    def run(number, *, mbps, sizes=(1024, 1 << 20), lab="t4", quartile=0.01):
        """Put a run on record; `mbps` at the largest size, half of it at the others."""
        store = RunStore(runs_dir, now=lambda: day(number))
        from dataclasses import replace

        with store.begin_run(
            replace(info, name=lab), True, "kernel", {"topology": 1}, arguments=["testbed"]
        ) as made:
            for size in sizes:
                busbw = mbps if size == max(sizes) else mbps / 2
                time_us = 1e6 / busbw
                row = Timing(
                    made.run_id, "ring", "one ring", "all_reduce", 4, 1, size, 20, time_us, time_us, time_us,
                    busbw, busbw, 100.0, 0, False, True, "kernel",
                    time_us * (1 - quartile), time_us * (1 + quartile),
                )  # fmt: skip
                made.add_timings([row])
            made.add_nic_bytes([NicBytes("ring", "one ring", 1024, "a", "nic1", 1536, 1536.0)])
            made.add_phase("apply", {"total_s": 0.25})
        database = Database(runs_dir / "lightbed.sqlite")
        with database.open_transaction() as connection:
            ended = (day(number) + timedelta(minutes=5)).isoformat()
            connection.execute(sa.update(runs).where(runs.c.id == made.run_id).values(finished=ended))
        database.close()
        return made.run_id

    def reading(number, power_dbm, place="a/nic1:transmit", lab="t4"):
        with open_history(runs_dir) as history:
            history.append(lab, day(number).timestamp(), [StretchLoss(place, "a -> b", 1.0, 1.0, power_dbm)])

    def epoch(number, which, why, lab="t4"):
        topology = {"nodes": 4, "degree": 2, "simplex": False, "strides": [1], "edges": [], "links": []}
        values = {
            "lab": lab, "epoch": which, "state": "verified", "operation": f"op{which}", "owner": "1 x/0",
            "lab_file": "l",
            "revision": "r", "name": why, "topology": json.dumps(topology), "hosts": json.dumps(list("abcd")),
            "words": why, "intended_at": day(number).isoformat(), "applied_at": day(number).isoformat(),
        }  # fmt: skip
        database = Database(runs_dir / "lightbed.sqlite")
        with database.open_transaction() as connection:
            connection.execute(intents.insert().values(values))
        database.close()

    return SimpleNamespace(runs_dir=runs_dir, run=run, reading=reading, epoch=epoch)
