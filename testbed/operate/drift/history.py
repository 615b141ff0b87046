"""Stored losses with the time of their reading: a table in the database of a runs directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from testbed.errors import ResultsError, StorageError
from testbed.operate.drift.losses import StretchLoss
from testbed.storage.address import get_database_address
from testbed.storage.database import DATABASE_ERRORS, Database
from testbed.storage.reading import find_hint, get_database_message, is_database_error, read_rows
from testbed.storage.schema import losses as losses_table

LossSeries = tuple[tuple[float, ...], tuple[float, ...]]
"""Times in seconds since 1970, and losses in dB at them."""


class LossHistory:
    """Losses of all readings in one database. A context manager. Methods raise `ResultsError`.

    The first stored reading creates the database. Reading needs no write permission.
    """

    def __init__(self, path: str | Path) -> None:
        self._database = Database(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._database.close()

    def append(self, lab: str, taken_s: float, losses: Iterable[StretchLoss]) -> None:
        """Store one reading, all losses of a lab at one time, in one transaction."""
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
            with self._convert_errors(), self._database.open_transaction() as connection:
                connection.execute(losses_table.insert(), rows)

    def read_series(self, lab: str, since_s: float) -> dict[str, LossSeries]:
        """Return the series of every place of a lab since a time, in order of time."""
        query = (
            "select place, taken_s, loss_db from losses "
            "where lab = ? and taken_s >= ? order by place, taken_s"
        )
        try:
            loss_rows = read_rows(self._database.address, query, (lab, since_s))
        except Exception as error:
            if not is_database_error(error):
                raise
            raise ResultsError(
                f"losses cannot be read in {self._database.name} ({get_database_message(error)})"
            ) from error
        readings_by_place: dict[str, list[tuple[float, float]]] = {}
        for row in loss_rows:
            readings_by_place.setdefault(row["place"], []).append((row["taken_s"], row["loss_db"]))
        return {
            place: (tuple(time_s for time_s, _ in rows), tuple(loss for _, loss in rows))
            for place, rows in readings_by_place.items()
        }

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            raise ResultsError(str(error)) from error
        except (*DATABASE_ERRORS, OSError) as error:
            problem = f"losses cannot be stored in {self._database.name} ({get_database_message(error)})"
            raise ResultsError(f"{problem}; {find_hint(error)}") from error


def open_history(runs_dir: str | Path) -> LossHistory:
    """Return the history of a runs directory. It shares its database with the results and the journal."""
    return LossHistory(get_database_address(runs_dir))
