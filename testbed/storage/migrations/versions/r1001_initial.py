"""The first schema. New databases are made from `schema.metadata`, that of today; later revisions follow this one."""

from __future__ import annotations

revision = "1001"
down_revision = None


def upgrade() -> None:
    """Do nothing: databases are created whole."""
