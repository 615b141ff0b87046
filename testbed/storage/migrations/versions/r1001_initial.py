"""The schema that `schema.metadata` makes: a new database begins with it, and each later revision changes one before.

A later revision leads from it to the schema of its day; `metadata` is that of today.
"""

from __future__ import annotations

revision = "1001"
down_revision = None


def upgrade() -> None:
    """Do nothing: databases are created whole."""
