"""Losses as they were read, kept with their time: a table in the database of a directory of runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import sqlalchemy as sa

from testbed.database_file import database_in
from testbed.errors import ResultsError
from testbed.operate.drift.losses import StretchLoss

_BUSY_TIMEOUT_S = 30.0
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
    """Losses of all readings in one SQLite file. A context manager. Raises `ResultsError`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._engine = sa.create_engine(f"sqlite:///{self.path}", connect_args={"timeout": _BUSY_TIMEOUT_S})
        with self._errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _metadata.create_all(self._engine)

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
            with self._errors(), self._engine.begin() as connection:
                connection.execute(sa.insert(_losses), rows)

    def series(self, lab: str, since_s: float) -> dict[str, Series]:
        """Return the series of every place of a lab from a time on, in order of time."""
        query = (
            sa.select(_losses.c.place, _losses.c.taken_s, _losses.c.loss_db)
            .where((_losses.c.lab == lab) & (_losses.c.taken_s >= since_s))
            .order_by(_losses.c.place, _losses.c.taken_s)
        )
        found: dict[str, list[tuple[float, float]]] = {}
        with self._errors(), self._engine.connect() as connection:
            for place, taken_s, loss_db in connection.execute(query):
                found.setdefault(place, []).append((taken_s, loss_db))
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
