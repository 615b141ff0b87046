"""Faults of a command line: tables that lose rows, or have noise within."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sim.twins.switch.fault_list import Fault
from sim.twins.wire.line_faults import LineFaults

_TABLE_ROWS = 3
"""Lines from which a reply counts as a table, which noise and truncation may hit."""


@dataclass(slots=True)
class CliFaults:
    """Faults of tables on a command line: the next so many lose rows, or have noise within."""

    device: LineFaults
    truncated_tables: int = 0
    noisy_tables: int = 0

    def table(self) -> Mapping[str, Fault]:
        """Return the faults by name, for `SwitchTwin`."""
        return {
            "truncate_table": self._counted("truncated_tables"),
            "noise": self._counted("noisy_tables"),
        }

    def _counted(self, name: str) -> Fault:
        return Fault(
            lambda request: setattr(self, name, request.whole("count", 1)),
            lambda _: setattr(self, name, 0),
            "count",
        )

    def spoil(self, rows: list[str], noise: str) -> list[str]:
        """Return the rows of a reply as they really come."""
        if len(rows) < _TABLE_ROWS:
            return rows
        if self.truncated_tables:
            self.truncated_tables -= 1
            self.device.fired["truncate_table"] += 1
            kept = len(rows) // 2
            rows = [*rows[:kept], rows[kept][: len(rows[kept]) // 2]]
        if self.noisy_tables:
            self.noisy_tables -= 1
            self.device.fired["noise"] += 1
            rows = [*rows[:2], noise, *rows[2:]]
        return rows
