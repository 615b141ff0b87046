"""Losses as they were read, kept with their time: a table in the database of a directory of runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import sqlalchemy as sa

from testbed.database_file import BUSY_TIMEOUT_S, database_in, read_rows
from testbed.errors import ResultsError
from testbed.operate.drift.losses import StretchLoss

_metadata = sa.MetaData()

_losses = sa.Table(
    "losses",
    _metadata,
    sa.Column("lab", sa.Text, primary_key=True),
    sa.Column("place", sa.Text, primary_key=True),
    sa.Column("taken_s", sa.Float, primary_key=True),
    sa.Column("loss_db", sa.Float, nullable=False),
    sa.Column("intent_db", sa.Float, nullable=False),
    sa.Column("power_dbm", sa.Float, nullable=False),
)

Series = tuple[tuple[float, ...], tuple[float, ...]]
"""Times in seconds since 1970, and losses in dB at them."""


class LossHistory:
    """Losses of all readings in one SQLite file. A context manager. Raises `ResultsError`.

    The file is made by the first reading that is kept; looking at what was kept needs no right to write.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._engine = sa.create_engine(f"sqlite:///{self.path}", connect_args={"timeout": BUSY_TIMEOUT_S})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._engine.dispose()

    def append(self, lab: str, taken_s: float, losses: Iterable[StretchLoss]) -> None:
        """Add one reading: all losses of a lab at one time, or none of them."""
        rows = [
            {
                "lab": lab,
                "place": loss.place,
                "taken_s": taken_s,
                "loss_db": loss.loss_db,
                "intent_db": loss.intent_db,
                "power_dbm": loss.power_dbm,
            }
            for loss in losses
        ]
        if rows:
            with self._errors():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self._engine.begin() as connection:
                    _metadata.create_all(connection)
                    connection.execute(sa.insert(_losses), rows)

    def series(self, lab: str, since_s: float) -> dict[str, Series]:
        """Return the series of every place of a lab from a time on, in order of time."""
        query = (
            f"select place, taken_s, loss_db from {_losses.name} "  # noqa: S608 - a name of ours
            "where lab = ? and taken_s >= ? order by place, taken_s"
        )
        try:
            rows_of_lab = read_rows(self.path, query, (lab, since_s))
        except (OSError, sqlite3.DatabaseError) as error:
            raise ResultsError(f"losses cannot be read in {self.path} ({error})") from error
        found: dict[str, list[tuple[float, float]]] = {}
        for row in rows_of_lab:
            found.setdefault(row["place"], []).append((row["taken_s"], row["loss_db"]))
        return {
            place: (tuple(taken for taken, _ in rows), tuple(loss for _, loss in rows))
            for place, rows in found.items()
        }

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.DatabaseError, OSError) as error:
            what = f"losses cannot be kept in {self.path} ({getattr(error, 'orig', error)})"
            raise ResultsError(
                f"{what}; free disk space, or choose another directory (--runs-dir)"
            ) from error


def history_in(runs_dir: str | Path) -> LossHistory:
    """Return the history of a directory of runs; it shares the file with their results and the journal."""
    return LossHistory(database_in(runs_dir))
