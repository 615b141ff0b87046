"""The first schema. New databases get the current schema, `schema.metadata`. Later revisions follow this one."""

from __future__ import annotations

revision = "1001"
down_revision = None


def upgrade() -> None:
    """Do nothing: databases are created whole."""
