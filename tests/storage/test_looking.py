"""Looking at a database leaves the locks of those alone that have it open in the same process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from libraries import skip_without

skip_without("sqlalchemy")

from testbed.database_file import read_rows
from testbed.storage.database import Database

ASK = """
import fcntl, struct, sys
with open(sys.argv[1], "r+b") as file:
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0x40000002, 510, 0)  # the bytes of SQLite's shared lock
    found = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, asked))
print(found[0] != fcntl.F_UNLCK)
"""


def is_held(path):
    """Return whether another process finds SQLite's shared lock held."""
    asked = subprocess.run([sys.executable, "-c", ASK, path], capture_output=True, text=True, check=True)
    return asked.stdout.strip() == "True"


@pytest.mark.process
def test_rows_are_read_without_dropping_the_locks_of_an_open_database(tmp_path):
    path = tmp_path / "lightbed.sqlite"
    database = Database(path)
    with database.open_transaction() as connection:
        connection.exec_driver_sql("insert into counters values ('newest', 1)")
    assert is_held(path)
    assert read_rows(path, "select value from counters") == [{"value": 1}]
    assert is_held(path), "the log could be taken away from under the connection"
    database.close()
    assert not is_held(path)
