"""The database of a directory of runs: one file, in which results and the journal of operations have their tables."""

from __future__ import annotations

from pathlib import Path


def database_in(runs_dir: str | Path) -> Path:
    """Return the path of the database of a directory of runs."""
    return Path(runs_dir) / "lightbed.sqlite"
