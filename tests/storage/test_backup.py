"""Backup and restore, from each kind of database to each."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tarfile
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("alembic")
skip_without("sqlalchemy")

from testbed.cli.app import run_app
from testbed.errors import StorageError
from testbed.storage import schema
from testbed.storage.backup import SKIPPED_TOKEN_COUNT, back_up, restore
from testbed.storage.database import Database
from testbed.storage.reading import read_rows

KEPT = Path(__file__).parent / "data" / "laboratory.sqlite"
RUN = "20261123T055112-616504"
LEASE = {
    "id": "l1", "lab": "lab", "owner": "ann@h", "process": "1 x/1", "state": "granted", "arrival": 7, "token": 41,
    "priority": 0, "resources": ["host:a"], "parts": ["host:a"], "allowed": [], "is_implicit": False,
    "ttl_s": 60.0, "requested_s": 0.0, "expires_s": 60.0,
}  # fmt: skip


@pytest.fixture
def runs(tmp_path):
    """Provide a directory of runs, with the files of its run."""
    runs = tmp_path / "old"
    (runs / RUN / "nccl").mkdir(parents=True)
    (runs / RUN / ".lock").touch()
    (runs / RUN / "nccl" / "ring.json").write_text("{}")
    shutil.copy(KEPT, runs / "lightbed.sqlite")
    return runs


def tables(address):
    names = sorted(schema.metadata.tables)
    return {name: [dict(row) for row in read_rows(address, f"select * from {name}")] for name in names}


@pytest.mark.slow
def test_a_backup_of_a_file_is_restored_on_either_database(runs, database_address, tmp_path):
    made = back_up(runs / "lightbed.sqlite", runs, tmp_path / "b.tar")
    assert (made.run_ids, made.row_count_by_table["runs"], made.row_count_by_table["losses"]) == (
        (RUN,),
        1,
        1,
    )
    new = tmp_path / "new"
    put = restore(tmp_path / "b.tar", database_address, new)
    assert put.run_ids == (RUN,)
    assert sorted(str(path.relative_to(new / RUN)) for path in (new / RUN).rglob("*")) == [
        "nccl",
        "nccl/ring.json",
    ]
    (operation, other) = read_rows(database_address, "select * from operations order by started")
    assert (operation["state"], other["state"]) == ("done", "interrupted")
    (intent,) = read_rows(database_address, "select * from intents")
    assert json.loads(intent["topology"])["nodes"] == 12


@pytest.mark.slow
def test_what_was_restored_is_backed_up_as_it_was(database_address, runs, tmp_path):
    back_up(runs / "lightbed.sqlite", runs, tmp_path / "1.tar")
    restore(tmp_path / "1.tar", database_address, tmp_path / "one")
    back_up(database_address, tmp_path / "one", tmp_path / "2.tar")
    restore(tmp_path / "2.tar", tmp_path / "two" / "lightbed.sqlite", tmp_path / "two")
    one, two = tables(database_address), tables(tmp_path / "two" / "lightbed.sqlite")
    assert {name: len(rows) for name, rows in one.items()} == {name: len(rows) for name, rows in two.items()}
    for name in ("operations", "steps", "intents", "discoveries", "losses", "circuits"):
        assert one[name] == two[name]


@pytest.mark.slow
def test_numbers_that_a_database_gives_go_on_after_a_restore(database_address, tmp_path):
    event = {"operation": "op", "switch": "ocs1", "ordinal": 0, "event": "send", "at": "now"}
    source, target = Database(tmp_path / "lightbed.sqlite"), Database(database_address)
    with source.open_transaction() as connection:
        connection.execute(schema.step_events.insert(), [event] * 3)
    source.close()
    back_up(source.address, tmp_path, tmp_path / "b.tar")
    restore(tmp_path / "b.tar", database_address, tmp_path)
    with target.open_transaction() as connection:
        connection.execute(schema.step_events.insert().values(event))
    target.close()
    numbers = [
        row["number"] for row in read_rows(database_address, "select number from step_events order by number")
    ]
    assert numbers == [1, 2, 3, 4]


@pytest.mark.slow
def test_leases_of_a_backup_are_ended_and_no_token_returns(database_address, tmp_path):
    source, target = Database(tmp_path / "lightbed.sqlite"), Database(database_address)
    for database, token in ((source, 41), (target, 99)):
        with database.open_transaction() as connection:
            connection.execute(schema.leases.insert().values(LEASE))
            connection.execute(schema.lease_parts.insert().values(lab="lab", part="host:a", lease="l1"))
            connection.execute(schema.counters.insert().values(name="token", value=token))
        database.close()
    back_up(source.address, tmp_path, tmp_path / "b.tar")
    restore(tmp_path / "b.tar", database_address, tmp_path, replaces_contents=True)
    (lease,) = read_rows(database_address, "select * from leases")
    assert (lease["state"], lease["reason"], lease["token"]) == ("broken", "restored from a backup", 41)
    assert read_rows(database_address, "select * from lease_parts") == []
    assert read_rows(database_address, "select value from counters where name = 'token'") == [
        {"value": 99 + SKIPPED_TOKEN_COUNT}
    ]


def test_a_database_that_holds_something_is_not_overwritten(runs, tmp_path):
    back_up(runs / "lightbed.sqlite", runs, tmp_path / "b.tar")
    with pytest.raises(
        StorageError, match=r"is not empty \(discoveries, intents, losses, operations, runs, circuits"
    ):
        restore(tmp_path / "b.tar", runs / "lightbed.sqlite", runs)
    with pytest.raises(StorageError, match=r"b\.tar exists"):
        back_up(runs / "lightbed.sqlite", runs, tmp_path / "b.tar")


@pytest.mark.slow
def test_a_restore_that_fails_changes_nothing(runs, tmp_path, monkeypatch):
    back_up(runs / "lightbed.sqlite", runs, tmp_path / "b.tar")
    Database(runs / "lightbed.sqlite", keep_open=False).prepare()
    before = tables(runs / "lightbed.sqlite")
    monkeypatch.setattr("testbed.storage.backup._end_leases", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        restore(tmp_path / "b.tar", runs / "lightbed.sqlite", runs, replaces_contents=True)
    assert tables(runs / "lightbed.sqlite") == before


def test_no_backup_is_made_of_a_damaged_file_nor_taken_from_a_stranger(runs, tmp_path):
    damaged = bytearray(KEPT.read_bytes())
    damaged[3000:9000] = b"\x55" * 6000
    (runs / "lightbed.sqlite").write_bytes(bytes(damaged))
    with pytest.raises((StorageError, sqlite3.DatabaseError)):
        back_up(runs / "lightbed.sqlite", runs, tmp_path / "b.tar")
    assert not (tmp_path / "b.tar").exists()
    (tmp_path / "x.tar").write_bytes(b"no archive")
    with pytest.raises(StorageError, match="did not write"):
        restore(tmp_path / "x.tar", tmp_path / "y.sqlite", tmp_path)
    with tarfile.open(tmp_path / "z.tar", "w") as archive:
        archive.add(KEPT, "other")
    with pytest.raises(StorageError, match=r"it has no lightbed\.sqlite"):
        restore(tmp_path / "z.tar", tmp_path / "y.sqlite", tmp_path)


@pytest.mark.slow
def test_the_commands_print_what_they_did(runs, tmp_path, capsys):
    assert run_app(["backup", str(tmp_path / "b.tar"), "--runs-dir", str(runs)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/b.tar holds 18 rows, and the files of 1 run\n"
    words = ["restore", str(tmp_path / "b.tar"), "--runs-dir", str(tmp_path / "new"), "--json"]
    assert run_app(words) == 0
    assert json.loads(capsys.readouterr().out)["rows"]["operations"] == 2
    assert run_app(words) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "storage"


@pytest.mark.process
@pytest.mark.socket
def test_a_server_is_named_by_an_option_of_every_command_that_keeps_something(
    runs, tmp_path, postgresql, capsys
):
    back_up(runs / "lightbed.sqlite", runs, tmp_path / "b.tar")
    there = ["--runs-dir", str(tmp_path / "new"), "--database", postgresql, "--json"]
    assert run_app(["restore", str(tmp_path / "b.tar"), *there]) == 0
    capsys.readouterr()
    assert run_app(["runs", *there]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["run_id"] == RUN
    assert not (tmp_path / "new" / "lightbed.sqlite").exists()
    assert run_app(["runs", "--runs-dir", str(tmp_path / "new"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []
