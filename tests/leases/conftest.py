"""Leases of tests: a store on each kind of database, with a clock that the test holds."""

from __future__ import annotations

import pytest
from libraries import skip_without

skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.leases.store import LeaseStore
from testbed.storage.database import Database


class Clock:
    def __init__(self):
        self.now_s = 1_800_000_000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stores(database_address, clock):
    """Return a function that makes a store of a person with connections of its own, as another process has."""
    databases = []

    def make(owner="ann@h", **more):
        databases.append(Database(database_address))
        return LeaseStore(databases[-1], "lab", owner=owner, now=clock, **more)

    yield make
    for database in databases:
        database.close()
